#include "bindings/torch/src/work.h"

#include <ATen/core/ivalue.h>
#include <ATen/core/jit_type.h>
#include <c10/core/StreamGuard.h>

#include <algorithm>

#include "bindings/torch/src/errors.h"
#include "bindings/torch/src/executor.h"
#include "bindings/torch/src/signals.h"

namespace whorl_torch {
namespace {

c10::intrusive_ptr<c10::ivalue::Future> make_future(std::vector<c10::Device> devices = {}) {
  return c10::make_intrusive<c10::ivalue::Future>(c10::ListType::create(c10::TensorType::get()),
                                                  std::move(devices));
}

std::vector<c10::Device> devices_of(const std::shared_ptr<DeviceRun>& run) {
  if (run == nullptr) return {};
  return {run->device()};
}

/// Returns the devices of all parts.
std::vector<c10::Device> devices_of(const std::vector<WorkPtr>& parts) {
  std::vector<c10::Device> devices;
  for (const WorkPtr& part : parts) {
    for (const c10::Device& device : part->getFuture()->devices()) devices.push_back(device);
  }
  return devices;
}

/// Returns whether a caller of wait() has given a timeout.
bool is_limited(std::chrono::milliseconds timeout) {
  return timeout != kNoTimeout && timeout.count() > 0;
}

} // namespace

WhorlWork::WhorlWork(Description description, std::function<void()> body)
    : OrderedWork(description.rank, description.type, description.title, description.inputs),
      body_(std::move(body)),
      outputs_(std::move(description.outputs)),
      future_(make_future(devices_of(description.device))),
      sequence_(description.sequence),
      device_(std::move(description.device)) {}

bool WhorlWork::isCompleted() {
  return future_->completed() && (device_ == nullptr || device_->completed());
}

bool WhorlWork::isSuccess() const {
  if (!future_->completed() || future_->hasError()) return false;
  return device_ == nullptr || (device_->completed() && !device_->failure());
}

std::exception_ptr WhorlWork::exception() const {
  if (!future_->completed()) return nullptr;
  if (future_->hasError()) return future_->exception_ptr();
  return device_ == nullptr ? nullptr : device_->failure();
}

int WhorlWork::sourceRank() const { return source_.load(std::memory_order_relaxed); }

std::vector<at::Tensor> WhorlWork::result() {
  TORCH_CHECK(future_->completed(),
              "whorl: the result of an operation exists once it is complete; "
              "call wait() first");
  future_->waitAndThrow();
  return outputs_;
}

bool WhorlWork::wait(std::chrono::milliseconds timeout) {
  if (is_limited(timeout)) {
    wait_until(deadline_in(timeout), timeout);
    return true;
  }
  const WaitOfProgram waits;
  Executor::complete_before_wait(*this);
  if (!future_->completed()) {
    if (overdue_) {
      wait_with_grace();
    } else if (const auto executor = executor_.lock()) {
      executor->help_until(*this);
    }
  }
  take_result();
  return true;
}

void WhorlWork::wait_until(Deadline deadline, std::chrono::milliseconds timeout) {
  const WaitOfProgram waits;
  Executor::complete_before_wait(*this);
  std::unique_lock lock(mutex_);
  bool complete = wait_in_slices(cv_, lock, deadline, [this] { return completed_; });
  lock.unlock();
  if (complete && device_ != nullptr) complete = device_->wait_until(deadline);
  if (!complete) {
    fail<c10::DistBackendError>("whorl rank ", rank_, ": ", opTypeToString(opType_),
                                " was not complete after the ", timeout.count(),
                                " ms given to wait(); it goes on");
  }
  take_result();
}

void WhorlWork::take_result() {
  future_->wait();
  if (future_->hasError()) std::rethrow_exception(future_->exception_ptr());
  if (device_ != nullptr) {
    device_->block_current_stream(); // the future has an event only if the operation has outputs on
                                     // this rank
    if (const auto failure = device_->failure()) std::rethrow_exception(failure);
  }
}

void WhorlWork::wait_with_grace() {
  const Deadline deadline = deadline_in(grace_);
  if (const auto executor = executor_.lock()) {
    if (executor->help_until(*this, deadline)) return;
  } else {
    std::unique_lock lock(mutex_);
    if (wait_in_slices(cv_, lock, deadline, [this] { return completed_; })) return;
  }
  overdue_();
}

void WhorlWork::abort() {
  if (abort_) abort_();
}

std::exception_ptr WhorlWork::run() noexcept {
  try {
    if (body_) body_();
    return nullptr;
  } catch (...) {
    return std::current_exception();
  }
}

void WhorlWork::complete(std::exception_ptr error) {
  body_ = nullptr;
  const CompletionScope completion(origin_);
  // Ends the span of the profile, and wakes timed waiters, which then wait for the future.
  finish(error);
  if (error) {
    future_->setErrorIfNeeded(error);
  } else if (device_ != nullptr) {
    try {
      const c10::OptionalStreamGuard stream(device_->stream()); // for the event of the future
      future_->markCompleted(c10::IValue(outputs_));
    } catch (...) { // the device has failed
      future_->setErrorIfNeeded(std::current_exception());
    }
  } else {
    future_->markCompleted(c10::IValue(outputs_));
  }
}

CoalescedWork::CoalescedWork(int rank, std::vector<WorkPtr> parts)
    : OrderedWork(rank, c10d::OpType::COALESCED),
      parts_(std::move(parts)),
      future_(make_future(devices_of(parts_))) {
  if (parts_.empty()) {
    future_->markCompleted(c10::IValue(std::vector<at::Tensor>()));
    return;
  }
  // The last part to complete completes the whole.
  const auto left = std::make_shared<std::atomic<std::size_t>>(parts_.size());
  const auto all = std::make_shared<std::vector<c10::intrusive_ptr<c10::ivalue::Future>>>();
  for (const auto& part : parts_) all->push_back(part->getFuture());
  for (const auto& future : *all) {
    future->addCallback([left, all, whole = future_](c10::ivalue::Future&) {
      if (left->fetch_sub(1, std::memory_order_acq_rel) != 1) return;
      std::vector<at::Tensor> outputs;
      for (const auto& one : *all) {
        if (one->hasError()) return whole->setErrorIfNeeded(one->exception_ptr());
        one->wait(); // the current stream, for the event of the whole
        for (auto& tensor : one->constValue().toTensorVector()) outputs.push_back(tensor);
      }
      whole->markCompleted(c10::IValue(std::move(outputs)));
    });
  }
}

bool CoalescedWork::isCompleted() {
  return future_->completed() && std::all_of(parts_.begin(), parts_.end(), [](const WorkPtr& part) {
           return part->isCompleted();
         });
}

bool CoalescedWork::isSuccess() const {
  return future_->completed() && std::all_of(parts_.begin(), parts_.end(),
                                             [](const WorkPtr& part) { return part->isSuccess(); });
}

std::exception_ptr CoalescedWork::exception() const {
  for (const WorkPtr& part : parts_) {
    if (const auto error = part->exception(); future_->completed() && error) return error;
  }
  return nullptr;
}

std::vector<at::Tensor> CoalescedWork::result() {
  future_->waitAndThrow();
  return future_->constValue().toTensorVector();
}

bool CoalescedWork::wait(std::chrono::milliseconds timeout) {
  const Deadline deadline = deadline_in(timeout); // of all parts together
  for (const auto& part : parts_) {
    if (is_limited(timeout)) {
      part->wait_until(deadline, timeout);
    } else {
      part->wait();
    }
  }
  return true;
}

void CoalescedWork::abort() {
  for (const auto& part : parts_) part->abort();
}

} // namespace whorl_torch
