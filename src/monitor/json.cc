#include <fmt/core.h>
#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "monitor/snapshot.h"

namespace whorl::monitor {
namespace {

using nlohmann::ordered_json;

std::string_view name_of(Phase phase) {
  switch (phase) {
    case Phase::kCreating:
      return "creating";
    case Phase::kReady:
      return "ready";
    case Phase::kFailed:
      break;
  }
  return "failed";
}

ordered_json describe_json(const RecordedOperation& operation) {
  const Fingerprint& f = operation.fingerprint;
  ordered_json out{{"number", operation.number}, {"text", describe(operation)}};
  if (known(f)) {
    const bool transfer = operation.peer >= 0;
    const std::string name = !transfer         ? std::string(name_of(f.kind()))
                             : operation.sends ? "send"
                                               : "recv";
    out["operation"] = f.uneven() ? name + "v" : name;
    out["sequence"] = f.sequence;
    out["count"] = f.count();
    out["datatype"] = name_of(f.data_type());
    if (reduces(f.kind())) out["operator"] = name_of(f.reduce_op());
    if (has_root(f.kind())) out["root"] = f.root;
    if (transfer) out["peer"] = operation.peer;
  }
  out["began_ns"] = operation.began_ns;
  out["state"] = operation.under_way ? "started" : "completed";
  if (operation.ended_ns != 0) out["ended_ns"] = operation.ended_ns;
  return out;
}

} // namespace

std::string hex(const decltype(Identity::job)& job) {
  std::string text;
  for (const std::byte byte : job) text += fmt::format("{:02x}", static_cast<unsigned>(byte));
  return text;
}

std::string to_json(const Snapshot& snapshot) {
  ordered_json out{{"format", "whorl-flight-recorder"},
                   {"version", 1},
                   {"communicator", hex(snapshot.job)},
                   {"name", snapshot.name},
                   {"rank", snapshot.rank},
                   {"nranks", snapshot.nranks},
                   {"host", snapshot.host},
                   {"pid", snapshot.process_id},
                   {"time_ns", snapshot.taken_ns},
                   {"phase", name_of(snapshot.phase)},
                   {"error", snapshot.error},
                   {"begun", snapshot.begun}};
  const Snapshot::Wait& wait = snapshot.wait;
  if (wait.under_way) {
    out["wait"] = {{"text", wait.text}, {"since_ns", wait.since_ns}, {"looked_ns", wait.looked_ns}};
    if (wait.peer >= 0) out["wait"]["rank"] = wait.peer;
  }
  out["waited_ns"] = ordered_json::object(); // by rank
  for (std::size_t rank = 0; rank < snapshot.waited_ns.size(); ++rank) {
    if (snapshot.waited_ns[rank] == 0) continue;
    out["waited_ns"][fmt::format("{}", rank)] = snapshot.waited_ns[rank];
  }
  out["operations"] = ordered_json::array();
  for (const RecordedOperation& operation : snapshot.operations) {
    out["operations"].push_back(describe_json(operation));
  }
  return out.dump(1, ' ', false, ordered_json::error_handler_t::replace);
}

} // namespace whorl::monitor
