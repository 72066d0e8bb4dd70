#include "launchers/pmix_client.h"

#if defined(WHORL_HAVE_PMIX)

#include <dlfcn.h>
#include <fmt/core.h>
#include <pmix.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <mutex>

#include "base/event.h"

namespace whorl {
namespace {

/// The functions of libpmix.so.2 that whorl uses. If an MPI library of this process has loaded
/// libpmix, whorl uses the same copy, which counts its users.
struct Library {
  decltype(&PMIx_Init) init;
  decltype(&PMIx_Finalize) finalize;
  decltype(&PMIx_Put) put;
  decltype(&PMIx_Commit) commit;
  decltype(&PMIx_Fence_nb) fence_nb;
  decltype(&PMIx_Get) get;
  decltype(&PMIx_Error_string) error_string;
};

template <class Function>
bool find(void* handle, const char* name, Function* function) {
  *function = reinterpret_cast<Function>(::dlsym(handle, name));
  return *function != nullptr;
}

Result<Library> load_library() {
  void* const handle = ::dlopen("libpmix.so.2", RTLD_NOW | RTLD_LOCAL);
  if (handle == nullptr) {
    return launcher_error(fmt::format("cannot load libpmix.so.2: {}", ::dlerror()));
  }
  Library library{};
  if (!find(handle, "PMIx_Init", &library.init) ||
      !find(handle, "PMIx_Finalize", &library.finalize) ||
      !find(handle, "PMIx_Put", &library.put) || !find(handle, "PMIx_Commit", &library.commit) ||
      !find(handle, "PMIx_Fence_nb", &library.fence_nb) ||
      !find(handle, "PMIx_Get", &library.get) ||
      !find(handle, "PMIx_Error_string", &library.error_string)) {
    return launcher_error(fmt::format("libpmix.so.2 is not usable: {}", ::dlerror()));
  }
  return library;
}

pmix_proc_t process_named(const pmix_proc_t& self, pmix_rank_t rank) {
  pmix_proc_t process = self;
  process.rank = rank;
  return process;
}

pmix_info_t bool_info(const char* key) {
  pmix_info_t info{};
  std::strncpy(info.key, key, PMIX_MAX_KEYLEN);
  info.value.type = PMIX_BOOL;
  info.value.data.flag = true;
  return info;
}

pmix_info_t int_info(const char* key, int value) {
  pmix_info_t info{};
  std::strncpy(info.key, key, PMIX_MAX_KEYLEN);
  info.value.type = PMIX_INT;
  info.value.data.integer = value;
  return info;
}

/// State that a fence in flight and its caller share; the caller may give up first.
struct FenceState {
  Event event;
  std::atomic<bool> done{false};
  pmix_status_t status = PMIX_SUCCESS;
};

class Pmix final : public KeyValue {
 public:
  Pmix(const Library& library, const pmix_proc_t& self) : library_(library), self_(self) {}

  Status set(const std::string& key, std::span<const std::byte> value) override {
    pmix_value_t object{};
    object.type = PMIX_BYTE_OBJECT;
    object.data.bo.bytes = reinterpret_cast<char*>(const_cast<std::byte*>(value.data()));
    object.data.bo.size = value.size();
    WHORL_TRY(check("PMIx_Put", library_.put(PMIX_GLOBAL, key.c_str(), &object)));
    return check("PMIx_Commit", library_.commit());
  }

  Status fence(std::int64_t timeout_ms) override {
    const pmix_info_t collect = bool_info(PMIX_COLLECT_DATA);
    const pmix_proc_t everyone = process_named(self_, PMIX_RANK_WILDCARD);
    const auto state = std::make_shared<FenceState>();
    auto reference = std::make_unique<std::shared_ptr<FenceState>>(state);
    const pmix_status_t started =
        library_.fence_nb(&everyone, 1, &collect, 1, &Pmix::fence_done, reference.get());
    if (started == PMIX_OPERATION_SUCCEEDED) return {};
    WHORL_TRY(check("PMIx_Fence_nb", started));
    reference.release(); // NOLINT: fence_done() owns it now

    Event::Waiter waiter(state->event);
    const WaitResult result = wait_for_server(
        [&] {
          // pairs with release in fence_done()
          return state->done.load(std::memory_order_acquire) ? Progress::kDone : Progress::kIdle;
        },
        waiter, timeout_ms);
    if (result == WaitResult::kTimedOut) {
      return launcher_error(
          fmt::format("not all ranks came to the PMIx fence within {} ms", timeout_ms));
    }
    return check("PMIx_Fence", state->status);
  }

  Result<std::vector<std::byte>> get(int rank, const std::string& key,
                                     std::int64_t timeout_ms) override {
    const int seconds = static_cast<int>(std::clamp<std::int64_t>(timeout_ms / 1000, 1, 86'400));
    const pmix_info_t timeout = int_info(PMIX_TIMEOUT, seconds);
    const pmix_proc_t from = process_named(self_, static_cast<pmix_rank_t>(rank));
    pmix_value_t* value = nullptr;
    WHORL_TRY(check("PMIx_Get", library_.get(&from, key.c_str(), &timeout, 1, &value)));
    std::vector<std::byte> bytes;
    const bool fits = value->type == PMIX_BYTE_OBJECT && value->data.bo.size <= kMaxValueBytes;
    if (fits) {
      const auto* const begin = reinterpret_cast<const std::byte*>(value->data.bo.bytes);
      bytes.assign(begin, begin + value->data.bo.size);
    }
    if (value->type == PMIX_BYTE_OBJECT) std::free(value->data.bo.bytes);
    std::free(value);
    if (!fits) {
      return launcher_error(fmt::format("the PMIx value of {} was not written by whorl", key));
    }
    return bytes;
  }

  /// Returns a number that the server knows about the job (`of_job`) or this rank under `key`; −1
  /// if the server has no such number.
  std::int64_t number(const char* key, bool of_job) const {
    const pmix_proc_t of = of_job ? process_named(self_, PMIX_RANK_WILDCARD) : self_;
    pmix_value_t* value = nullptr;
    if (library_.get(&of, key, nullptr, 0, &value) != PMIX_SUCCESS) return -1;
    const std::int64_t number = value->type == PMIX_UINT32   ? value->data.uint32
                                : value->type == PMIX_UINT16 ? value->data.uint16
                                                             : -1;
    std::free(value);
    return number;
  }

  const pmix_proc_t& self() const noexcept { return self_; }
  /// Tells the server that this process ends in order.
  void leave() noexcept { library_.finalize(nullptr, 0); }

 private:
  Status check(const char* call, pmix_status_t status) const {
    if (status == PMIX_SUCCESS) return {};
    return launcher_error(fmt::format("{}: {}", call, library_.error_string(status)));
  }

  /// Notifies the caller of a fence that the fence has completed. Called on a thread of the PMIx
  /// library.
  static void fence_done(pmix_status_t status, void* reference) {
    const std::unique_ptr<std::shared_ptr<FenceState>> state(
        static_cast<std::shared_ptr<FenceState>*>(reference));
    (*state)->status = status;
    (*state)->done.store(true, std::memory_order_release); // pairs with acquire in fence()
    (*state)->event.notify();
  }

  Library library_;
  pmix_proc_t self_;
};

} // namespace

Result<StoreProcess> open_pmix() {
  static std::mutex mutex;
  static Pmix* client = nullptr;
  const std::lock_guard lock(mutex);
  if (client == nullptr) {
    const Result<Library> library = load_library();
    if (!library.ok()) return library.status();
    pmix_proc_t self{};
    if (const pmix_status_t status = library->init(&self, nullptr, 0); status != PMIX_SUCCESS) {
      return launcher_error(
          fmt::format("PMIx_Init: {}; start the program by a launcher that has a PMIx server, or "
                      "unset PMIX_RANK and PMIX_NAMESPACE if a shell below one has left them",
                      library->error_string(status)));
    }
    client = new Pmix(*library, self);
    static const pid_t owner = ::getpid();
    std::atexit([] {
      if (::getpid() == owner) client->leave(); // not in a child of fork()
    });
  }
  StoreProcess process;
  process.rank = static_cast<int>(client->self().rank);
  process.nranks = static_cast<int>(client->number(PMIX_JOB_SIZE, true));
  process.local_rank = static_cast<int>(client->number(PMIX_LOCAL_RANK, false));
  process.local_nranks = static_cast<int>(client->number(PMIX_LOCAL_SIZE, true));
  process.job_id = client->self().nspace;
  process.store = client;
  if (process.nranks < 1 || process.rank < 0 || process.rank >= process.nranks) {
    return launcher_error(
        fmt::format("the PMIx server says rank {} of {}", process.rank, process.nranks));
  }
  return process;
}

} // namespace whorl

#else

namespace whorl {

Result<StoreProcess> open_pmix() {
  return Status::error(
      Code::kRemoteError,
      "this whorl was built without pmix.h (Debian: libpmix-dev), so it cannot speak PMIx");
}

} // namespace whorl

#endif
