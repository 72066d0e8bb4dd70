#include "schedule/json.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <limits>
#include <nlohmann/json.hpp>
#include <utility>

#include "base/printable.h"
#include "schedule/machine.h"
#include "schedule/text.h"

namespace whorl {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::string_view kBuffers[] = {"input", "output", "scratch"};

/// Reader of the fields of one object. Keeps the first error, which ends everything.
class ObjectReader {
 public:
  ObjectReader(const Json& object, std::string place, std::string& error)
      : object_(object), place_(std::move(place)), error_(error) {
    if (!object.is_object()) fail("", "is not an object");
  }
  bool ok() const { return error_.empty(); }
  std::string place_of(std::string_view field) const { return place_ + "/" + std::string(field); }
  void fail(std::string_view field, const std::string& what) {
    if (!ok()) return;
    error_ = printable(fmt::format("\"{}\" {}.", field.empty() ? place_ : place_of(field), what));
  }
  /// Returns the value of `field`, or null if it is missing.
  const Json* find(std::string_view field) {
    if (!ok()) return nullptr;
    const auto found = object_.find(field);
    if (found == object_.end()) return nullptr;
    ++used_;
    return &*found;
  }
  template <class T>
  void number(std::string_view field, T& value) {
    const Json* const found = find(field);
    if (found != nullptr) to_number(*found, field, value);
  }
  template <class T>
  void numbers(std::string_view field, std::vector<T>& values) {
    const Json* const found = array(field);
    if (found == nullptr) return;
    for (const Json& each : *found) {
      values.emplace_back();
      to_number(each, field, values.back());
    }
  }
  const Json* array(std::string_view field) {
    const Json* const found = find(field);
    if (found != nullptr && !found->is_array()) fail(field, "is not an array");
    return ok() ? found : nullptr;
  }
  std::string text(std::string_view field) {
    const Json* const found = find(field);
    if (found == nullptr) return {};
    if (!found->is_string()) fail(field, "is not a string");
    return ok() ? found->get<std::string>() : "";
  }
  void buffer(std::string_view field, Buffer& value) {
    if (!object_.is_object() || !object_.contains(field)) return;
    const std::string name = text(field);
    const auto* const found = std::find(std::begin(kBuffers), std::end(kBuffers), name);
    if (found == std::end(kBuffers)) return fail(field, "is no buffer");
    value = static_cast<Buffer>(found - std::begin(kBuffers));
  }
  bool boolean(std::string_view field) {
    const Json* const found = find(field);
    if (found == nullptr) return false;
    if (!found->is_boolean()) fail(field, "is neither true nor false");
    return ok() && found->get<bool>();
  }
  /// Checks that all fields of the object have been read.
  void finish() {
    if (ok() && used_ != object_.size()) fail("", "has a field of an unknown name");
  }

 private:
  template <class T>
  void to_number(const Json& json, std::string_view field, T& value) {
    using Limits = std::numeric_limits<T>;
    const bool fits =
        json.is_number_integer() &&
        (json.is_number_unsigned()
             ? json.get<std::uint64_t>() <= static_cast<std::uint64_t>(Limits::max())
             : json.get<std::int64_t>() >= static_cast<std::int64_t>(Limits::min()) &&
                   json.get<std::int64_t>() <= static_cast<std::int64_t>(Limits::max()));
    if (!fits) {
      return fail(field,
                  fmt::format("is no whole number from {} to {}", Limits::min(), Limits::max()));
    }
    value = json.get<T>();
  }

  const Json& object_;
  std::string place_;
  std::string& error_;
  std::size_t used_ = 0;
};

Json to_json(const Step& step) {
  const auto name = [](Buffer buffer) {
    const auto index = static_cast<std::size_t>(buffer);
    return std::string(index < std::size(kBuffers) ? kBuffers[index] : "?");
  };
  return {{"ops", ops_name(step.ops)},
          {"final", step.final()},
          {"src", name(step.src)},
          {"dst", name(step.dst)},
          {"fan", step.fan},
          {"tx", step.tx},
          {"rx", step.rx},
          {"chunk", step.chunk},
          {"dst_chunk", step.dst_chunk},
          {"stride", step.stride},
          {"count", step.count},
          {"repeat", step.repeat}};
}

Step read_step(ObjectReader in) {
  Step step;
  const int ops = ops_from_name(in.text("ops"));
  if (ops < 0) in.fail("ops", "is no set of operations");
  step.ops = static_cast<std::uint8_t>(ops | (in.boolean("final") ? kFinal : 0));
  in.buffer("src", step.src);
  in.buffer("dst", step.dst);
  in.number("fan", step.fan);
  in.number("tx", step.tx);
  in.number("rx", step.rx);
  in.number("chunk", step.chunk);
  in.number("dst_chunk", step.dst_chunk);
  in.number("stride", step.stride);
  in.number("count", step.count);
  in.number("repeat", step.repeat);
  in.finish();
  return step;
}

Lane read_lane(ObjectReader in, std::string& error) {
  Lane lane;
  in.number("channel", lane.channel);
  in.numbers("peers", lane.peers);
  if (const Json* steps = in.array("steps")) {
    for (const Json& each : *steps) {
      const std::string place = in.place_of("steps/" + std::to_string(lane.steps.size()));
      lane.steps.push_back(read_step(ObjectReader(each, place, error)));
    }
  }
  in.finish();
  return lane;
}

Schedule read_schedule(ObjectReader in, std::string& error) {
  Schedule schedule;
  in.number("rank", schedule.rank);
  in.number("nranks", schedule.nranks);
  in.number("chunks_per_block", schedule.chunks_per_block);
  in.number("input_chunks", schedule.input_chunks);
  in.number("output_chunks", schedule.output_chunks);
  in.numbers("scratch", schedule.scratch);
  in.number("message_chunks", schedule.message_chunks);
  in.number("min_slots", schedule.min_slots);
  if (const Json* lanes = in.array("lanes")) {
    for (const Json& each : *lanes) {
      const std::string place = in.place_of("lanes/" + std::to_string(schedule.lanes.size()));
      schedule.lanes.push_back(read_lane(ObjectReader(each, place, error), error));
    }
  }
  in.finish();
  return schedule;
}

} // namespace

std::string to_json(std::span<const Schedule> schedules) {
  Json all = Json::array();
  for (const Schedule& schedule : schedules) {
    Json lanes = Json::array();
    for (const Lane& lane : schedule.lanes) {
      Json steps = Json::array();
      for (const Step& step : lane.steps) steps.push_back(to_json(step));
      lanes.push_back({{"channel", lane.channel}, {"peers", lane.peers}, {"steps", steps}});
    }
    all.push_back({{"rank", schedule.rank},
                   {"nranks", schedule.nranks},
                   {"chunks_per_block", schedule.chunks_per_block},
                   {"input_chunks", schedule.input_chunks},
                   {"output_chunks", schedule.output_chunks},
                   {"scratch", schedule.scratch},
                   {"message_chunks", schedule.message_chunks},
                   {"min_slots", schedule.min_slots},
                   {"lanes", lanes}});
  }
  return all.dump(1) + "\n";
}

Result<std::vector<Schedule>> schedules_from_json(std::string_view text) {
  const Json all = Json::parse(text, nullptr, /*allow_exceptions=*/false);
  std::string error;
  if (all.is_discarded()) error = "The text is no valid JSON.";
  if (error.empty() && !all.is_array()) error = "The JSON text is not an array of schedules.";
  std::vector<Schedule> schedules;
  for (std::size_t i = 0; error.empty() && i < all.size(); ++i) {
    schedules.push_back(read_schedule(ObjectReader(all[i], "/" + std::to_string(i), error), error));
  }
  if (!error.empty()) return Status::error(Code::kInvalidArgument, error);
  return schedules;
}

} // namespace whorl
