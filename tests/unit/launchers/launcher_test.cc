#include "launchers/launcher.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <set>

namespace whorl {
namespace {

using testing::HasSubstr;
using Variables = std::map<std::string, std::string>;

/// Store that returns the values set in this process.
class MapStore final : public KeyValue {
 public:
  Status set(const std::string& key, std::span<const std::byte> value) override {
    if (!values_.emplace(key, std::vector<std::byte>(value.begin(), value.end())).second) {
      return Status::error(Code::kInvalidUsage, key + " is set twice");
    }
    return {};
  }
  Status fence(std::int64_t) override {
    ++fences;
    return {};
  }
  Result<std::vector<std::byte>> get(int, const std::string& key, std::int64_t) override {
    return values_.at(key);
  }
  int fences = 0;

 private:
  std::map<std::string, std::vector<std::byte>> values_;
};

class LauncherTest : public testing::Test {
 protected:
  /// Calls detect_launch() with these variables and both kinds of server, unless the member errors
  /// say otherwise.
  Result<Launch> detect(const Variables& variables) {
    return detect_launch({.environment = [&variables](const char* name) -> const char* {
                            const auto found = variables.find(name);
                            return found == variables.end() ? nullptr : found->second.c_str();
                          },
                          .open_pmix = [this]() -> Result<StoreProcess> {
                            if (!pmix_error.ok()) return pmix_error;
                            return StoreProcess{.rank = 2,
                                                .nranks = 6,
                                                .local_rank = 0,
                                                .local_nranks = 2,
                                                .job_id = "space",
                                                .store = &pmix_store};
                          },
                          .open_pmi1 = [this](int fd) -> Result<KeyValue*> {
                            pmi1_fd = fd;
                            if (!pmi1_error.ok()) return pmi1_error;
                            return &pmi1_store;
                          }});
  }
  Launch found(const Variables& variables) {
    Result<Launch> launch = detect(variables);
    EXPECT_TRUE(launch.ok()) << launch.status().message();
    return launch.ok() ? *launch : Launch{.source = "error"};
  }
  std::string error_of(const Variables& variables) {
    const Result<Launch> launch = detect(variables);
    EXPECT_FALSE(launch.ok()) << launch->source << " was found";
    return launch.status().message();
  }

  MapStore pmix_store, pmi1_store;
  Status pmix_error, pmi1_error;
  int pmi1_fd = -1;

  const Variables torchrun{{"RANK", "3"},
                           {"WORLD_SIZE", "8"},
                           {"LOCAL_RANK", "1"},
                           {"LOCAL_WORLD_SIZE", "2"},
                           {"MASTER_ADDR", "node7"},
                           {"MASTER_PORT", "29500"},
                           {"TORCHELASTIC_RUN_ID", "run"},
                           {"TORCHELASTIC_RESTART_COUNT", "1"}};
  const Variables pmix{{"PMIX_RANK", "2"}, {"PMIX_NAMESPACE", "space"}};
  const Variables pmi1{{"PMI_RANK", "1"},
                       {"PMI_SIZE", "4"},
                       {"PMI_FD", "9"},
                       {"MPI_LOCALRANKID", "1"},
                       {"MPI_LOCALNRANKS", "2"}};
  const Variables open_mpi{{"OMPI_COMM_WORLD_RANK", "1"},
                           {"OMPI_COMM_WORLD_SIZE", "2"},
                           {"OMPI_COMM_WORLD_LOCAL_RANK", "1"},
                           {"OMPI_COMM_WORLD_LOCAL_SIZE", "2"},
                           {"OMPI_MCA_ess_base_jobid", "17"}};
  const Variables slurm{{"SLURM_PROCID", "5"},
                        {"SLURM_NTASKS", "8"},
                        {"SLURM_LOCALID", "1"},
                        {"SLURM_JOB_ID", "42"},
                        {"SLURM_STEP_ID", "0"},
                        {"SLURM_STEP_NUM_NODES", "2"},
                        {"SLURM_STEP_NODELIST", "node[03-04]"}};
};

Variables join(Variables a, const Variables& b) {
  a.insert(b.begin(), b.end());
  return a;
}
Variables with(Variables variables, const std::string& name, const std::string& value) {
  variables[name] = value;
  return variables;
}
Variables without(Variables variables, const std::string& name) {
  variables.erase(name);
  return variables;
}

TEST_F(LauncherTest, NobodyIsOneRank) {
  const Launch launch = found({});
  EXPECT_EQ(launch.rank, 0);
  EXPECT_EQ(launch.nranks, 1);
  EXPECT_EQ(launch.address, "");
  EXPECT_EQ(launch.store, nullptr);
}

TEST_F(LauncherTest, Whorl) {
  const Launch launch =
      found({{"WHORL_RANK", "1"}, {"WHORL_NRANKS", "3"}, {"WHORL_ADDRESS", "[::1]:4000"}});
  EXPECT_EQ(launch.source, "WHORL_RANK");
  EXPECT_EQ(launch.rank, 1);
  EXPECT_EQ(launch.nranks, 3);
  EXPECT_EQ(launch.address, "[::1]:4000");
}

TEST_F(LauncherTest, Torchrun) {
  const Launch launch = found(torchrun);
  EXPECT_EQ(launch.source, "torchrun");
  EXPECT_EQ(launch.rank, 3);
  EXPECT_EQ(launch.nranks, 8);
  EXPECT_EQ(launch.local_rank, 1);
  EXPECT_EQ(launch.local_nranks, 2);
  EXPECT_EQ(launch.job_id, "run.1");
  EXPECT_EQ(launch.address, "node7:23011");
  EXPECT_EQ(found(with(torchrun, "WHORL_PORT", "7000")).address, "node7:7000");
  EXPECT_EQ(found(with(torchrun, "MASTER_ADDR", "fe80::1")).address, "[fe80::1]:23011");
  EXPECT_EQ(found(with(torchrun, "LOCAL_WORLD_SIZE", "8")).address, "127.0.0.1:23011");
}

TEST_F(LauncherTest, TorchrunNeverMeetsAtMasterPort) {
  for (int port = 0; port <= 65535; ++port) {
    const std::string text = std::to_string(port);
    const std::string address = found(with(torchrun, "MASTER_PORT", text)).address;
    ASSERT_NE(address, "node7:" + text);
    const int derived = std::stoi(address.substr(6));
    ASSERT_TRUE(derived >= 10'000 && derived < 30'000) << derived;
  }
}

TEST_F(LauncherTest, Pmix) {
  const Launch launch = found(pmix);
  EXPECT_EQ(launch.source, "PMIx");
  EXPECT_EQ(launch.rank, 2);
  EXPECT_EQ(launch.nranks, 6);
  EXPECT_EQ(launch.local_nranks, 2);
  EXPECT_EQ(launch.job_id, "space");
  EXPECT_EQ(launch.store, &pmix_store);
  EXPECT_EQ(launch.address, "");
}

TEST_F(LauncherTest, Pmi1) {
  const Launch launch = found(pmi1);
  EXPECT_EQ(launch.source, "PMI-1");
  EXPECT_EQ(launch.rank, 1);
  EXPECT_EQ(launch.nranks, 4);
  EXPECT_EQ(launch.local_rank, 1);
  EXPECT_EQ(pmi1_fd, 9);
  EXPECT_EQ(launch.store, &pmi1_store);
}

TEST_F(LauncherTest, OpenMpiOnOneHost) {
  const Launch launch = found(open_mpi);
  EXPECT_EQ(launch.source, "Open MPI");
  EXPECT_EQ(launch.rank, 1);
  EXPECT_THAT(launch.address, HasSubstr("127.0.0.1:"));
  EXPECT_NE(launch.address, found(with(open_mpi, "OMPI_MCA_ess_base_jobid", "18")).address);
}

TEST_F(LauncherTest, OpenMpiOnSeveralHostsNeedsAnAddress) {
  const Variables spread =
      with(with(open_mpi, "OMPI_COMM_WORLD_LOCAL_SIZE", "1"), "OMPI_COMM_WORLD_LOCAL_RANK", "0");
  EXPECT_THAT(error_of(spread), HasSubstr("WHORL_ADDRESS is not set"));
  EXPECT_EQ(found(with(spread, "WHORL_ADDRESS", "a:1")).address, "a:1");
}

TEST_F(LauncherTest, Slurm) {
  const Launch launch = found(slurm);
  EXPECT_EQ(launch.source, "Slurm");
  EXPECT_EQ(launch.rank, 5);
  EXPECT_EQ(launch.nranks, 8);
  EXPECT_EQ(launch.local_rank, 1);
  EXPECT_THAT(launch.address, HasSubstr("node03:"));
  EXPECT_NE(launch.address, found(with(slurm, "SLURM_STEP_ID", "1")).address);
  EXPECT_EQ(found(with(slurm, "SLURM_STEP_NUM_TASKS", "6")).nranks, 6);
  EXPECT_THAT(found(with(slurm, "SLURM_STEP_NUM_NODES", "1")).address, HasSubstr("127.0.0.1:"));
}

TEST_F(LauncherTest, InsideSallocAndBatchScriptsIsNoSlurmStep) {
  EXPECT_EQ(found(without(slurm, "SLURM_STEP_ID")).source, "no launcher");
  EXPECT_EQ(found(without(slurm, "SLURM_PROCID")).source, "no launcher");
  for (const char* reserved : {"4294967290", "4294967291", "4294967292"}) {
    EXPECT_EQ(found(with(slurm, "SLURM_STEP_ID", reserved)).source, "no launcher");
  }
}

TEST_F(LauncherTest, Order) {
  Variables all = join(slurm, open_mpi);
  EXPECT_EQ(found(all).source, "Open MPI");
  all = join(all, pmi1);
  EXPECT_EQ(found(all).source, "PMI-1");
  all = join(all, pmix);
  EXPECT_EQ(found(all).source, "PMIx");
  all = join(all, torchrun);
  EXPECT_EQ(found(all).source, "torchrun");
  all = join(all, {{"WHORL_RANK", "0"}, {"WHORL_NRANKS", "2"}, {"WHORL_ADDRESS", "h:1"}});
  EXPECT_EQ(found(all).source, "WHORL_RANK");
}

TEST_F(LauncherTest, AnAddressOverridesTheMeetingPointOnly) {
  for (const Variables& variables : {torchrun, pmix, pmi1, open_mpi, slurm}) {
    const Launch plain = found(variables);
    const Launch launch = found(with(variables, "WHORL_ADDRESS", "host:77"));
    EXPECT_EQ(launch.source, plain.source);
    EXPECT_EQ(launch.rank, plain.rank);
    EXPECT_EQ(launch.address, "host:77");
    EXPECT_EQ(launch.store, nullptr);
  }
}

TEST_F(LauncherTest, AServerThatCannotBeReachedLeavesTheNext) {
  pmix_error = Status::error(Code::kRemoteError, "cannot load libpmix.so.2");
  EXPECT_EQ(found(join(pmix, open_mpi)).source, "Open MPI");
  EXPECT_THAT(error_of(pmix), HasSubstr("launched by PMIx: cannot load libpmix.so.2"));
  // If the next one fails, the error also names the server that could have told more.
  EXPECT_THAT(error_of(join(pmix, with(open_mpi, "OMPI_COMM_WORLD_SIZE", "4"))),
              testing::AllOf(HasSubstr("WHORL_ADDRESS is not set; Open MPI's variables"),
                             HasSubstr("(launched by PMIx: cannot load libpmix.so.2)")));
  pmi1_error = Status::error(Code::kRemoteError, "PMI_FD=9 is not an open descriptor");
  EXPECT_THAT(error_of(pmi1), HasSubstr("PMI_FD=9"));
}

TEST_F(LauncherTest, ErrorsNameTheVariable) {
  EXPECT_THAT(error_of({{"WHORL_RANK", "0"}}), HasSubstr("WHORL_NRANKS is not set"));
  EXPECT_THAT(error_of({{"WHORL_NRANKS", "2"}}), HasSubstr("WHORL_RANK is not set"));
  EXPECT_THAT(error_of({{"WHORL_RANK", "0"}, {"WHORL_NRANKS", "2"}}),
              HasSubstr("WHORL_ADDRESS is not set"));
  EXPECT_THAT(error_of({{"WHORL_RANK", "2"}, {"WHORL_NRANKS", "2"}}),
              HasSubstr("WHORL_RANK=2 is not below WHORL_NRANKS=2"));
  EXPECT_THAT(error_of({{"WHORL_RANK", "-1"}, {"WHORL_NRANKS", "2"}}),
              HasSubstr("WHORL_RANK=\"-1\""));
  EXPECT_THAT(error_of({{"WHORL_RANK", "1x"}, {"WHORL_NRANKS", "2"}}),
              HasSubstr("WHORL_RANK=\"1x\""));
  EXPECT_THAT(error_of({{"WHORL_RANK", "0"}, {"WHORL_NRANKS", "99999999999"}}),
              HasSubstr("WHORL_NRANKS=\"99999999999\""));
  EXPECT_THAT(error_of({{"WHORL_RANK", "1\x1b["}, {"WHORL_NRANKS", "2"}}),
              HasSubstr("WHORL_RANK=\"1 [\""));
  EXPECT_THAT(error_of({{"WHORL_ADDRESS", "a:1"}}), HasSubstr("set WHORL_RANK and WHORL_NRANKS"));
  for (const char* bad : {"a", ":1", "a:", "a:0", "a:65536", "a:1x"}) {
    EXPECT_THAT(error_of(with(torchrun, "WHORL_ADDRESS", bad)), HasSubstr("WHORL_ADDRESS=\""));
  }
  EXPECT_THAT(error_of(with(torchrun, "RANK", "8")), HasSubstr("RANK=8 is not below WORLD_SIZE=8"));
  EXPECT_THAT(error_of(with(torchrun, "MASTER_PORT", "x")), HasSubstr("MASTER_PORT=\"x\""));
  EXPECT_THAT(error_of(with(torchrun, "WHORL_PORT", "0")), HasSubstr("WHORL_PORT=\"0\""));
  EXPECT_THAT(error_of(with(torchrun, "LOCAL_RANK", "2")), HasSubstr("LOCAL_RANK=2"));
  EXPECT_THAT(error_of(with(with(torchrun, "LOCAL_WORLD_SIZE", "9"), "LOCAL_RANK", "0")),
              HasSubstr("LOCAL_WORLD_SIZE=9 is more than the 8 ranks"));
  EXPECT_THAT(error_of(without(torchrun, "MASTER_ADDR")), HasSubstr("MASTER_ADDR is not set"));
  EXPECT_THAT(error_of(with(pmi1, "PMI_RANK", "4")),
              HasSubstr("PMI_RANK=4 is not below PMI_SIZE=4"));
  EXPECT_THAT(error_of(with(pmi1, "PMI_FD", "nine")), HasSubstr("PMI_FD=\"nine\""));
  EXPECT_THAT(error_of(without(open_mpi, "OMPI_COMM_WORLD_SIZE")),
              HasSubstr("OMPI_COMM_WORLD_SIZE is not set"));
  EXPECT_THAT(error_of(with(slurm, "SLURM_PROCID", "8")), HasSubstr("SLURM_PROCID=8"));
  EXPECT_THAT(error_of(with(slurm, "SLURM_STEP_NODELIST", "n[")), HasSubstr("SLURM_STEP_NODELIST"));
}

TEST_F(LauncherTest, HalfOfTorchrunIsNotOneRank) {
  EXPECT_THAT(error_of({{"RANK", "0"}, {"WORLD_SIZE", "2"}}), HasSubstr("MASTER_ADDR is not set"));
  EXPECT_EQ(found({{"RANK", "0"}, {"WORLD_SIZE", "1"}}).source, "no launcher");
  EXPECT_EQ(found(join(pmi1, {{"RANK", "0"}, {"WORLD_SIZE", "2"}})).source, "PMI-1");
}

TEST_F(LauncherTest, HalfOfPmi1IsNotOneRank) {
  EXPECT_THAT(error_of(without(pmi1, "PMI_FD")), HasSubstr("PMI_FD is not set"));
  EXPECT_EQ(found({{"PMI_RANK", "0"}, {"PMI_SIZE", "1"}}).source, "no launcher");
  EXPECT_EQ(found(join(slurm, without(pmi1, "PMI_FD"))).source, "Slurm");
}

TEST_F(LauncherTest, NamesTheVariablesThatUsersSetAndThoseOfLaunchers) {
  const auto list = [](const Variables& variables) {
    std::vector<std::string> lines;
    for (const auto& [name, value] : launch_variables([&variables](const char* name) {
           const auto found = variables.find(name);
           return found == variables.end() ? nullptr : found->second.c_str();
         })) {
      lines.push_back(name + (value ? "=" + *value : ""));
    }
    return lines;
  };
  EXPECT_THAT(list({{"RANK", ""}, {"HOME", "/"}}),
              testing::ElementsAre("WHORL_RANK", "WHORL_NRANKS", "WHORL_ADDRESS", "WHORL_PORT"));
  EXPECT_THAT(list({{"WHORL_NRANKS", "2"}, {"WORLD_SIZE", "4"}}),
              testing::ElementsAre("WHORL_RANK", "WHORL_NRANKS=2", "WHORL_ADDRESS", "WHORL_PORT",
                                   "WORLD_SIZE=4"));
}

// A launcher whose variables are read has them in the list, too.
TEST_F(LauncherTest, NamesEveryVariableThatIsRead) {
  std::set<std::string> named;
  launch_variables([&named](const char* name) {
    named.insert(name);
    return nullptr;
  });
  for (const Variables* const variables : {&torchrun, &pmix, &pmi1, &open_mpi, &slurm}) {
    const Result<Launch> launch = detect_launch(
        {.environment = [&](const char* name) -> const char* {
           EXPECT_TRUE(named.count(name) > 0) << name << " is read and not named";
           const auto found = variables->find(name);
           return found == variables->end() ? nullptr : found->second.c_str();
         },
         .open_pmix = [&]() -> Result<StoreProcess> { return StoreProcess{.store = &pmix_store}; },
         .open_pmi1 = [&](int) -> Result<KeyValue*> { return &pmi1_store; }});
    EXPECT_TRUE(launch.ok()) << launch.status().message();
  }
}

TEST_F(LauncherTest, ShareUsesANewKeyEachTime) {
  Launch launch = found(pmix);
  launch.rank = 0;
  const std::vector<std::byte> value{std::byte{1}, std::byte{2}};
  for (int i = 0; i < 3; ++i) {
    const Result<std::vector<std::byte>> shared = share(launch, value, 1000);
    ASSERT_TRUE(shared.ok()) << shared.status().message();
    EXPECT_EQ(*shared, value);
  }
  EXPECT_EQ(pmix_store.fences, 3);
  EXPECT_FALSE(share(launch, std::vector<std::byte>(1025), 1000).ok());
}

TEST(SlurmHostList, FirstHost) {
  EXPECT_EQ(first_slurm_host("node1"), "node1");
  EXPECT_EQ(first_slurm_host("node1,node2"), "node1");
  EXPECT_EQ(first_slurm_host("node[003-005,9],gpu1"), "node003");
  EXPECT_EQ(first_slurm_host("node[7]"), "node7");
  EXPECT_EQ(first_slurm_host("rack[2-3]n[10,11]-ib"), "rack2n10-ib");
  EXPECT_EQ(first_slurm_host(""), "");
  EXPECT_EQ(first_slurm_host("node[1-2"), "");
  EXPECT_EQ(first_slurm_host("node[]"), "");
  EXPECT_EQ(first_slurm_host("node]1"), "");
}

} // namespace
} // namespace whorl
