// The Python module whorl_torch._C: the class of the process group and its options.
#include <pybind11/chrono.h>
#include <torch/csrc/utils/pybind.h>

#include "bindings/torch/src/process_group.h"
#include "bindings/torch/src/python_future.h"
#include "bindings/torch/src/shared_memory.h"
#include "bindings/torch/src/signals.h"
#include "whorl/whorl.h"

namespace py = pybind11;

namespace whorl_torch {
namespace {

std::string library_version() {
  int version = 0;
  whorlGetRelease(&version);
  return c10::str(version / 10000, ".", version / 100 % 100, ".", version % 100);
}

c10::intrusive_ptr<ProcessGroupWhorl> create(const c10::intrusive_ptr<c10d::Store>& store, int rank,
                                             int size,
                                             c10::intrusive_ptr<ProcessGroupWhorl::Options> options,
                                             const c10::intrusive_ptr<ProcessGroupWhorl>& world) {
  return c10::make_intrusive<ProcessGroupWhorl>(store, rank, size, std::move(options), world);
}

} // namespace
} // namespace whorl_torch

PYBIND11_MODULE(TORCH_EXTENSION_NAME, module) {
  using whorl_torch::ProcessGroupWhorl;
  using Milliseconds = std::chrono::milliseconds;
  const auto without_gil = py::call_guard<py::gil_scoped_release>();

  // Base classes of the ones below.
  py::module::import("torch._C._distributed_c10d");

  auto group = py::class_<ProcessGroupWhorl, c10d::Backend, c10::intrusive_ptr<ProcessGroupWhorl>>(
      module, "ProcessGroupWhorl");
  py::class_<ProcessGroupWhorl::Options, c10d::Backend::Options,
             c10::intrusive_ptr<ProcessGroupWhorl::Options>>(group, "Options")
      .def(py::init([](Milliseconds timeout, bool eager) {
             auto options = c10::make_intrusive<ProcessGroupWhorl::Options>(timeout);
             options->eager = eager;
             return options;
           }),
           py::arg("timeout") = kBackendDefaultTimeout, py::arg("eager") = true)
      .def_readwrite("eager", &ProcessGroupWhorl::Options::eager)
      .def_readwrite("_name", &ProcessGroupWhorl::Options::name);
  group.def(py::init(&whorl_torch::create), py::arg("store"), py::arg("rank"), py::arg("size"),
            py::arg("options"), py::arg("world") = nullptr, without_gil);
  group.def_property_readonly("options",
                              [](const ProcessGroupWhorl& self) { return self.options(); });
  group
      .def("abort", &ProcessGroupWhorl::abort_group, without_gil)
      // torch calls it on the ranks that a new group leaves out; the others need nothing of these.
      .def(
          "perform_nocolor_split", [](ProcessGroupWhorl&, const py::object&) {}, py::arg("device"))
      .def("_set_default_timeout", &ProcessGroupWhorl::set_timeout, without_gil)
      .def(
          "monitored_barrier",
          [](ProcessGroupWhorl& self, Milliseconds timeout, bool wait_all_ranks) {
            c10d::BarrierOptions options;
            options.timeout = timeout;
            self.monitoredBarrier(options, wait_all_ranks);
          },
          py::arg("timeout") = Milliseconds(-1), py::arg("wait_all_ranks") = false, without_gil);

  whorl_torch::define_works(module);
  whorlSetInterruptCheck(&whorl_torch::interrupt_check);
  module.def("shut_down_all", &whorl_torch::shut_down_all_groups, without_gil);
  module.def("begin_shared_memory", &whorl_torch::begin_shared_memory, without_gil);
  module.def("end_shared_memory", &whorl_torch::end_shared_memory, without_gil);
  module.def("in_shared_memory", &whorl_torch::in_shared_memory, without_gil);
  module.def(
      "shared_memory_use",
      [] {
        const auto use = whorl_torch::shared_memory_use();
        return std::pair(use.in_tensors, use.kept);
      },
      without_gil);
  module.def("library_version", &whorl_torch::library_version);
}
