// whorl-devices: lists the GPUs of this machine, whether whorl can use them, and their links.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include "tools/cli/app.h"
#include "tools/cli/pages.h"
#include "tools/cli/program.h"
#include "whorl/whorl.h"
#ifdef WHORL_HAVE_CUDA
#include "gpu/images.h"
#include "gpu/nvml.h"
#include "topology/nvlink.h"
#endif

namespace {

using nlohmann::json;

#ifdef WHORL_HAVE_CUDA
using namespace whorl::gpu; // NOLINT: the program prints what this namespace finds

template <class T>
json number(const std::optional<T>& value) {
  return value ? json(*value) : json();
}

json describe(const DeviceFacts& facts, const std::vector<NvLink>& links) {
  json out{{"name", facts.name},
           {"uuid", facts.uuid},
           {"bus_id", facts.bus_id},
           {"memory_bytes", facts.memory_bytes},
           {"sm_clock_mhz", number(facts.sm_clock_mhz)},
           {"max_sm_clock_mhz", number(facts.max_sm_clock_mhz)},
           {"memory_clock_mhz", number(facts.memory_clock_mhz)},
           {"power_mw", number(facts.power_mw)},
           {"power_limit_mw", number(facts.power_limit_mw)},
           {"mig", number(facts.partitioned)},
           {"slowed_by", facts.slowed_by},
           {"nvlinks", json::array()}};
  for (const NvLink& link : links) {
    const char* const end = link.end == NvLink::End::kGpu      ? "gpu"
                            : link.end == NvLink::End::kSwitch ? "switch"
                                                               : "other";
    out["nvlinks"].push_back({{"link", link.link},
                              {"version", link.version},
                              {"end", end},
                              {"peer_bus_id", link.peer_bus_id}});
  }
  return out;
}

void add_devices(json& out) {
  out["kernels"] = whorl::gpu::describe(images());
  const Nvml& nvml = Nvml::instance();
  if (nvml.state() != Nvml::State::kReady) {
    out["nvml"] = nvml.error();
    return;
  }
  out["driver"] = nvml.driver_version();
  const DeviceLinks links = find_links(nvml);
  const std::vector<nvmlDevice_t> devices = nvml.devices();
  for (std::size_t i = 0; i < devices.size(); ++i) {
    out["devices"].push_back(describe(facts_of(nvml, devices[i]), links.links[i]));
  }
  for (const DevicePair& pair : links.pairs) {
    out["pairs"].push_back({{"from", pair.from},
                            {"to", pair.to},
                            {"nvlinks", pair.nvlinks},
                            {"read", words_of(pair.read)},
                            {"write", words_of(pair.write)},
                            {"atomics", words_of(pair.atomics)},
                            {"over_nvlink", words_of(pair.nvlink)}});
  }
}
#else
void add_devices(json&) {}
#endif

std::string clock(const json& mhz) {
  return mhz.is_null() ? "?" : fmt::format("{}", mhz.get<unsigned>());
}

void print(const json& all) {
  if (all["supported"].get<bool>()) {
    fmt::print("whorl takes memory of devices here\n");
  } else {
    fmt::print("whorl takes no memory of devices here: {}\n", all["why"].get<std::string>());
  }
  if (all.contains("kernels")) fmt::print("kernels: {}\n", all["kernels"].get<std::string>());
  if (all.contains("nvml")) {
    fmt::print("no description of devices: {}\n", all["nvml"].get<std::string>());
  }
  if (all.contains("driver")) fmt::print("driver {}\n", all["driver"].get<std::string>());
  std::size_t index = 0;
  for (const json& device : all["devices"]) {
    fmt::print(
        "device {}: {}, {}, PCI {}, {:.1f} GiB, SM {} of {} MHz, memory {} MHz, slowed by: {}\n",
        index++, device["name"].get<std::string>(), device["uuid"].get<std::string>(),
        device["bus_id"].get<std::string>(),
        static_cast<double>(device["memory_bytes"].get<unsigned long long>()) / (1 << 30),
        clock(device["sm_clock_mhz"]), clock(device["max_sm_clock_mhz"]),
        clock(device["memory_clock_mhz"]),
        device["slowed_by"].empty()
            ? "nothing"
            : fmt::format("{}",
                          fmt::join(device["slowed_by"].get<std::vector<std::string>>(), ", ")));
    for (const json& link : device["nvlinks"]) {
      fmt::print("  NVLink {}, version {}, to {} {}\n", link["link"].get<unsigned>(),
                 link["version"].get<unsigned>(), link["end"].get<std::string>(),
                 link["peer_bus_id"].get<std::string>());
    }
  }
  for (const json& pair : all["pairs"]) {
    fmt::print("device {} to {}: {} NVLinks; reads: {}; writes: {}; atomics: {}\n",
               pair["from"].get<std::size_t>(), pair["to"].get<std::size_t>(),
               pair["nvlinks"].get<unsigned>(), pair["read"].get<std::string>(),
               pair["write"].get<std::string>(), pair["atomics"].get<std::string>());
  }
}

int run(int argc, char** argv) {
  bool as_json = false;
  whorl::cli::App app(
      "Lists the GPUs of this machine, whether whorl can use them, and their links.",
      "whorl-devices");
  app.add_flag("--json", as_json, "Print JSON, for programs");
  if (const auto status = whorl::cli::parse(app, argc, argv)) return *status;
  json all{{"devices", json::array()}, {"pairs", json::array()}};
  int supported = 0;
  if (whorlDeviceSupport(&supported) != whorlSuccess) supported = 0;
  all["supported"] = supported != 0;
  if (supported == 0) all["why"] = whorlGetLastError(nullptr);
  add_devices(all);
  if (as_json) {
    fmt::print("{}\n", all.dump(2, ' ', false, json::error_handler_t::replace));
  } else {
    print(all);
  }
  return 0;
}

} // namespace

int main(int argc, char** argv) {
  return whorl::cli::run_program("whorl-devices", run, argc, argv);
}
