// Words of launchers: lines of a PMI-1 server, and variables of the environment. The first byte
// chooses; the rest is what the server sends, or lines of NAME=value.
#include <map>

#include "base/unknown_params.h"
#include "fed_system.h"
#include "input.h"
#include "launchers/launcher.h"
#include "launchers/pmi1.h"
#include "target.h"

namespace whorl::fuzz {
namespace {

void check_server(Input input) {
  constexpr int kFd = 3;
  FedSystem system;
  const ScopedSystem scope(&system);
  system[kFd].piece = 1 + input.byte();
  system[kFd].in = input.rest();
  const auto client = Pmi1::connect(Fd(kFd), 100);
  if (!client.ok()) return require_error(client.status());
  const auto value = (*client)->get(1, "whorl-0", 100);
  if (!value.ok()) return require_error(value.status());
  require(value->size() <= KeyValue::kMaxValueBytes, "a value within the limit");
}

void check_variables(Input input) {
  std::map<std::string, std::string, std::less<>> variables;
  std::vector<std::string> lines;
  for (std::string_view text = input.text(); !text.empty();) {
    const std::string_view line = text.substr(0, text.find('\n'));
    text.remove_prefix(std::min(line.size() + 1, text.size()));
    if (line.find('\0') != line.npos) continue; // no environment contains it
    lines.emplace_back(line);
    const std::size_t equals = line.find('=');
    if (equals != line.npos) variables.emplace(line.substr(0, equals), line.substr(equals + 1));
  }
  const auto down = [] { return launcher_error("there is no server"); };
  const auto launch =
      detect_launch({.environment = [&](const char* name) -> const char* {
                       const auto found = variables.find(name);
                       return found == variables.end() ? nullptr : found->second.c_str();
                     },
                     .open_pmix = [&]() -> Result<StoreProcess> { return down(); },
                     .open_pmi1 = [&](int) -> Result<KeyValue*> { return down(); }});
  if (launch.ok()) {
    require(launch->rank >= 0 && launch->rank < launch->nranks, "a rank below their number");
    require(launch->nranks == 1 || !launch->address.empty(), "a place to meet");
    require(launch->local_nranks <= launch->nranks, "no more ranks here than in all");
    require(launch->local_rank < 0 || launch->local_rank < launch->nranks, "a local rank");
  } else {
    require_error(launch.status());
  }
  std::vector<const char*> environment;
  for (const std::string& line : lines) environment.push_back(line.c_str());
  environment.push_back(nullptr);
  for (const std::string& sentence : describe_unknown_params(environment.data())) {
    require(std::none_of(sentence.begin(), sentence.end(), is_control), "printable");
  }
}

} // namespace

std::vector<std::string> seeds() {
  const std::string server =
      "cmd=response_to_init pmi_version=1 pmi_subversion=1 rc=0\n"
      "cmd=maxes kvsname_max=256 keylen_max=64 vallen_max=1024\n"
      "cmd=my_kvsname kvsname=kvs_1\n"
      "cmd=get_result rc=0 msg=success value=2.00ff\n"
      "cmd=get_result rc=0 msg=success value=2.a0\n"
      "cmd=finalize_ack\n";
  return {char{0} + (char{0} + server),
          char{0} + (char{31} + server),
          char{1} + std::string("WHORL_RANK=1\nWHORL_NRANKS=4\nWHORL_ADDRESS=node7:4242\n"),
          char{1} + std::string("RANK=1\nWORLD_SIZE=2\nMASTER_ADDR=::1\nMASTER_PORT=29500\n"
                                "LOCAL_RANK=1\nLOCAL_WORLD_SIZE=2\nWHORL_SLOT=3\n"),
          char{1} + std::string("SLURM_PROCID=3\nSLURM_STEP_ID=0\nSLURM_NTASKS=8\nSLURM_LOCALID=1\n"
                                "SLURM_STEP_NODELIST=node[03-05,9],gpu1\nSLURM_JOB_ID=7\n"),
          char{1} + std::string("OMPI_COMM_WORLD_RANK=0\nOMPI_COMM_WORLD_SIZE=2\n"
                                "OMPI_COMM_WORLD_LOCAL_RANK=0\nOMPI_COMM_WORLD_LOCAL_SIZE=2\n"
                                "WHORL_PORT=4000\nPMI_RANK=0\nPMI_SIZE=2\nPMI_FD=5\n")};
}

} // namespace whorl::fuzz

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace whorl::fuzz;
  Input input(data, size);
  (input.byte() & 1) == 0 ? check_server(input) : check_variables(input);
  return 0;
}
