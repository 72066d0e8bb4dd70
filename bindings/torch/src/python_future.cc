#include "bindings/torch/src/python_future.h"

#include <torch/csrc/jit/python/pybind_utils.h>

#include <optional>

#include "bindings/torch/src/work.h"

namespace py = pybind11;

namespace whorl_torch {
namespace {

using torch::jit::PythonFutureWrapper;

/// Returns a Python function that runs `callback` in its turn.
py::cpp_function in_order(py::function callback, Origin origin) {
  return [callback = std::move(callback), origin = std::move(origin)](py::object future) {
    std::optional<CallbackScope> scope;
    {
      const py::gil_scoped_release while_waiting;
      scope.emplace(origin);
    }
    return callback(std::move(future));
  };
}

template <class OneWork>
void define_work(py::module& module, const char* name) {
  py::class_<OneWork, c10d::Work, c10::intrusive_ptr<OneWork>>(module, name)
      .def("get_future", [](OneWork& work) {
        py::object future =
            py::module::import("whorl_torch.futures")
                .attr("Future")(work.origin(), c10::intrusive_ptr<c10d::Work>::reclaim_copy(&work));
        future.cast<std::shared_ptr<PythonFutureWrapper>>()->fut = work.getFuture();
        return future;
      });
}

} // namespace

void define_works(py::module& module) {
  py::class_<Origin>(module, "Origin");
  module.def("in_order", &in_order);
  module.def("share_state", [](PythonFutureWrapper& future, const PythonFutureWrapper& other) {
    future.fut = other.fut;
  });
  define_work<WhorlWork>(module, "Work");
  define_work<CoalescedWork>(module, "CoalescedWork");
}

} // namespace whorl_torch
