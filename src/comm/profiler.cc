#include "comm/profiler.h"

#include <dlfcn.h>
#include <fmt/core.h>

#include "base/log.h"
#include "base/types.h"

namespace whorl {
namespace {

Status plugin_error(const std::string& plugin, const std::string& why) {
  return Status::error(Code::kInvalidUsage,
                       fmt::format("WHORL_PROFILER_PLUGIN={}: {}", plugin, why));
}

Result<const whorlProfiler_v1_t*> load(const std::string& plugin) {
  const bool in_program = plugin == "STATIC";
  // Stays loaded: other communicators use it, and its code may still run when the process ends.
  void* const library =
      ::dlopen(in_program ? nullptr : plugin.c_str(), RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
  if (library == nullptr) return plugin_error(plugin, ::dlerror());
  const auto* const found =
      static_cast<const whorlProfiler_v1_t*>(::dlsym(library, WHORL_PROFILER_SYMBOL));
  if (found == nullptr) {
    return plugin_error(
        plugin, fmt::format("{} does not define the variable {} of whorl/profiler.h{}",
                            in_program ? "the program" : "the library", WHORL_PROFILER_SYMBOL,
                            in_program ? "; is it linked with -rdynamic?" : ""));
  }
  if (found->name == nullptr || found->init == nullptr || found->startEvent == nullptr ||
      found->stopEvent == nullptr || found->finalize == nullptr) {
    return plugin_error(plugin, fmt::format("a member of {} is NULL", WHORL_PROFILER_SYMBOL));
  }
  return found;
}

} // namespace

Result<std::unique_ptr<Profiler>> Profiler::open(const std::string& plugin, const Who& who) {
  const auto loaded = load(plugin);
  if (!loaded.ok()) return loaded.status();
  std::unique_ptr<Profiler> profiler(new Profiler(**loaded, who.rank));
  const whorlResult_t result = (*loaded)->init(&profiler->context_, &profiler->mask_,
                                               who.name.c_str(), who.id, who.nranks, who.rank);
  if (result != whorlSuccess) {
    return plugin_error(plugin, fmt::format("init() of {} returned {} on rank {}", (*loaded)->name,
                                            static_cast<int>(result), who.rank));
  }
  profiler->ready_ = true;
  return profiler;
}

Profiler::~Profiler() {
  if (ready_) check(plugin_.finalize(context_), "finalize");
}

/// Ends the events after an error of the plug-in, with a warning.
void Profiler::check(whorlResult_t result, const char* function) noexcept {
  if (result == whorlSuccess) return;
  failed_ = true;
  static_cast<void>(without_exceptions([&]() -> Status {
    log(LogLevel::kWarn,
        fmt::format("rank {}: {}() of the profiler plug-in {} returned {}; it gets no more events",
                    rank_, function, plugin_.name, static_cast<int>(result)));
    return {};
  }));
}

void* Profiler::begin(const ObservedOperation& operation) noexcept {
  const int kind = operation.peer < 0 ? whorlProfileColl : whorlProfileP2p;
  if (failed_ || (std::atomic_ref(mask_).load(std::memory_order_relaxed) & kind) == 0) {
    return nullptr;
  }
  const Fingerprint& call = operation.fingerprint;
  const bool transfer = operation.peer >= 0;
  const Collective collective = !transfer         ? call.kind()
                                : operation.sends ? Collective::kSend
                                                  : Collective::kRecv;
  // All names are literals, which end with NUL.
  const whorlProfilerEvent_v1_t event{
      .size = sizeof(event),
      .type = kind,
      .rank = rank_,
      .func = name_of(collective).data(),
      .algo = operation.algorithm.empty() ? "" : operation.algorithm.data(),
      .datatype = name_of(call.data_type()).data(),
      .redOp = reduces(collective) ? name_of(call.reduce_op()).data() : "",
      .seqNumber = call.sequence,
      .count = call.uneven() ? 0 : call.count(),
      .bytes = operation.bytes,
      .root = has_root(collective) ? call.root : -1,
      .peer = operation.peer};
  void* handle = nullptr;
  check(plugin_.startEvent(context_, &handle, &event), "startEvent");
  // The plug-in may have no use for a handle; the engine takes null for no event.
  return failed_ ? nullptr : handle != nullptr ? handle : this;
}

void Profiler::end(void* handle) noexcept {
  if (failed_) return;
  check(plugin_.stopEvent(context_, handle == this ? nullptr : handle), "stopEvent");
}

} // namespace whorl
