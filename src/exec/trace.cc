#include "exec/trace.h"

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstring>
#include <iterator>
#include <set>

#include "base/file_pattern.h"
#include "base/log.h"
#include "base/system.h"
#include "exec/execution.h"

namespace whorl {
namespace {

std::string name_of_ops(std::uint8_t ops) {
  if ((ops & kWait) != 0) return "wait for a lane";
  std::string name;
  const auto add = [&](Op op, const char* word) {
    if ((ops & op) == 0) return;
    name += name.empty() ? "" : "_";
    name += word;
  };
  add(kRecv, "recv");
  add(kReduce, "reduce");
  add(kCopy, "copy");
  add(kSend, "send");
  return name.empty() ? "nothing" : name;
}

/// Escapes a text for a JSON string.
std::string escaped(const std::string& text) {
  std::string out;
  for (const char c : text) {
    if (c == '"' || c == '\\') out += '\\';
    out += static_cast<unsigned char>(c) < 32 ? ' ' : c;
  }
  return out;
}

std::string name_of_track(std::uint32_t track) {
  if (track == Trace::kOperations) return "operations";
  if (track < Trace::kOperations) return fmt::format("channel {}", track);
  if (track >= Trace::kFurtherLanes) {
    return fmt::format("channel {}, lane {}", track % Trace::kFurtherLanes,
                       track / Trace::kFurtherLanes);
  }
  const std::uint32_t peer = (track - Trace::kTransfers) / 2;
  return fmt::format("{} rank {}", (track - Trace::kTransfers) % 2 == 0 ? "from" : "to", peer);
}

} // namespace

Trace::Trace(std::string path, std::ofstream file, std::size_t records, Who who)
    : path_(std::move(path)),
      file_(std::move(file)),
      who_(std::move(who)),
      ticks_(ticks()),
      ns_(sys().now_ns()),
      records_(records) {}

Result<std::unique_ptr<Trace>> Trace::open(const std::string& pattern, std::size_t records,
                                           Who who) {
  const std::string path = expand_file_pattern(pattern, who.facts);
  std::ofstream file(path, std::ios::trunc);
  if (!file) {
    return Status::error(Code::kInvalidUsage,
                         fmt::format("WHORL_TRACE: rank {} cannot write {}: {}", who.facts.rank,
                                     path, std::strerror(errno)));
  }
  return std::unique_ptr<Trace>(new Trace(path, std::move(file), records, std::move(who)));
}

void Trace::write(std::span<const std::string> operations) {
  const std::uint64_t ticks_now = ticks();
  const double ns_per_tick = static_cast<double>(sys().now_ns() - ns_) /
                             static_cast<double>(std::max<std::uint64_t>(1, ticks_now - ticks_));
  // Whole nanoseconds for both ends of a slice, from which the duration follows: rounded by itself
  // it could reach into the next slice, and viewers drop slices that overlap.
  const auto ns_at = [&](std::uint64_t at) {
    const auto since = static_cast<double>(static_cast<std::int64_t>(at - ticks_));
    return static_cast<std::int64_t>(ns_) + std::llround(since * ns_per_tick);
  };
  const std::uint64_t kept = std::min<std::uint64_t>(added_, records_.size());
  fmt::memory_buffer text;
  const auto out = std::back_inserter(text);
  const int pid = who_.facts.rank;
  fmt::format_to(out,
                 "{{\"displayTimeUnit\":\"ns\",\"otherData\":{{\"ranks\":{},\"lost\":{}}},"
                 "\"traceEvents\":[\n{{\"ph\":\"M\",\"pid\":{},\"name\":\"process_name\","
                 "\"args\":{{\"name\":\"rank {} ({})\"}}}}",
                 who_.nranks, added_ - kept, pid, pid, escaped(who_.process));
  fmt::format_to(out,
                 ",\n{{\"ph\":\"M\",\"pid\":{},\"name\":\"process_sort_index\","
                 "\"args\":{{\"sort_index\":{}}}}}",
                 pid, pid);
  std::set<std::uint32_t> tracks;
  for (std::uint64_t i = added_ - kept; i < added_; ++i) {
    const TraceRecord& r = records_[static_cast<std::size_t>(i % records_.size())];
    if (tracks.insert(r.track).second) {
      fmt::format_to(out,
                     ",\n{{\"ph\":\"M\",\"pid\":{},\"tid\":{},\"name\":\"thread_name\","
                     "\"args\":{{\"name\":\"{}\"}}}}",
                     pid, r.track, name_of_track(r.track));
    }
    const auto slice = [&](const std::string& name, const char* category, std::uint64_t begin,
                           std::uint64_t end) {
      const std::int64_t from = ns_at(begin);
      const std::int64_t length = ns_at(end) - from;
      fmt::format_to(out,
                     ",\n{{\"ph\":\"X\",\"pid\":{},\"tid\":{},\"name\":\"{}\",\"cat\":\"{}\","
                     "\"ts\":{}.{:03},\"dur\":{}.{:03},\"args\":{{\"operation\":{}",
                     pid, r.track, name, category, from / 1000, from % 1000, length / 1000,
                     length % 1000, r.sequence);
    };
    if (r.kind == TraceRecord::Kind::kOperation) {
      const std::string name = r.algorithm < operations.size() ? operations[r.algorithm] : "?";
      slice(escaped(name), "operation", r.begin, r.end);
      fmt::format_to(out, ",\"bytes\":{}}}}}", r.bytes);
      continue;
    }
    slice(name_of_ops(r.ops), "step", r.begin, r.end);
    fmt::format_to(out, ",\"window\":{},\"step\":{},\"repetition\":{},\"bytes\":{}", r.window,
                   r.step, r.repetition, r.bytes);
    if (r.from != TraceRecord::kNoRank) fmt::format_to(out, ",\"from\":{}", r.from);
    if (r.to != TraceRecord::kNoRank) fmt::format_to(out, ",\"to\":{}", r.to);
    if (r.fan > 1) fmt::format_to(out, ",\"fan\":{}", r.fan);
    fmt::format_to(out, "}}}}");
    if (r.wait_begin != 0) {
      slice("waiting", "wait", r.wait_begin, r.wait_end);
      fmt::format_to(out, "}}}}");
    }
    if (text.size() > (1U << 20)) {
      file_.write(text.data(), static_cast<std::streamsize>(text.size()));
      text.clear();
    }
  }
  fmt::format_to(out, "\n]}}\n");
  file_.write(text.data(), static_cast<std::streamsize>(text.size()));
  file_.close();
  if (file_) return;
  log(LogLevel::kWarn, fmt::format("WHORL_TRACE: rank {} cannot write all of {}: {}",
                                   who_.facts.rank, path_, std::strerror(errno)));
}

/// Records the repetition that `lane` has just finished. The next repetition may begin at once.
void Execution::trace_step(LaneRun& lane) noexcept {
  const Step& step = lane.lane->steps[lane.step];
  LaneTrace& times = lane.trace;
  const auto rank = [&](bool any, std::uint8_t index) {
    return any && !step.waits() ? static_cast<std::uint16_t>(lane.lane->peers[index])
                                : TraceRecord::kNoRank;
  };
  TraceRecord record{.begin = times.began,
                     .end = ticks(),
                     .bytes = step.waits() ? 0 : lane.bytes,
                     .sequence = binding_.fingerprint.sequence,
                     .window = static_cast<std::uint32_t>(first_window_ + lane.window),
                     .track = track_ != 0 ? track_ : lane.track,
                     .step = static_cast<std::uint16_t>(lane.step),
                     .repetition = lane.repetition,
                     .from = rank(step.receives(), step.rx),
                     .to = rank(step.sends(), step.tx),
                     .fan = step.fan,
                     .ops = step.ops};
  if (times.idle_since != 0 && times.idle_until > times.idle_since) {
    record.wait_begin = times.idle_since;
    record.wait_end = times.idle_until;
  }
  trace_->add(record);
  times = {.began = record.end};
}

} // namespace whorl
