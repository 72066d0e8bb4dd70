// Tests of another user of the host: no access to the ranks' sockets and memory, with the id or
// without. Each test runs in processes of its own.
#include <fcntl.h>
#include <poll.h>
#include <sys/uio.h>

#include "tests/security/world.h"
#include "tests/support/intruders.h"
#include "tests/support/process_world.h"

namespace whorl::test {
namespace {

using ::testing::HasSubstr;

constexpr uid_t kNobody = 65534;

class OtherUserOfTheHost : public ::testing::Test {
 protected:
  void SetUp() override {
    if (::geteuid() != 0) GTEST_SKIP() << "only root can become another user";
    if (Other([] { return std::string("is"); }, kNobody).run() != "is") {
      GTEST_SKIP() << "user " << kNobody << " does not exist in this namespace of users";
    }
  }
};

/// Returns the files of /dev/shm that this process has mapped, as lines of its map.
std::vector<std::string> mapped_shared_files() {
  std::vector<std::string> found;
  std::ifstream map("/proc/self/maps");
  for (std::string line; std::getline(map, line);) {
    if (line.find("/dev/shm/") != line.npos) found.push_back(line);
  }
  return found;
}

/// Tries all that a process may try with another one's memory. Returns "tried: ", and what it could
/// do.
std::string try_memory_of(pid_t pid, const std::vector<std::string>& fds, std::uintptr_t secret) {
  const std::string folder = "/proc/" + std::to_string(pid);
  std::string could = "tried: ";
  for (const std::string& fd : fds) {
    const Fd opened(::open((folder + "/fd/" + fd).c_str(), O_RDWR | O_CLOEXEC));
    if (opened.valid()) could += "open descriptor " + fd + "; ";
  }
  const Fd memory(::open((folder + "/mem").c_str(), O_RDONLY | O_CLOEXEC));
  if (memory.valid()) could += "open its memory; ";
  std::array<char, 8> bytes{};
  iovec local{bytes.data(), bytes.size()};
  iovec remote{reinterpret_cast<void*>(secret), bytes.size()};
  if (::process_vm_readv(pid, &local, 1, &remote, 1, 0) >= 0) could += "read its memory; ";
  return could;
}

/// Returns this process's descriptors of memory that is shared.
std::vector<std::string> shared_descriptors() {
  std::vector<std::string> fds;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
    std::error_code gone;
    const std::string link = std::filesystem::read_symlink(entry.path(), gone);
    if (link.find("memfd:whorl") != link.npos) fds.push_back(entry.path().filename());
  }
  return fds;
}

TEST_F(OtherUserOfTheHost, CannotOpenTheSharedMemory) {
  const auto outcomes = run_ranks(2, Mode::kProcesses, [](RankContext& context) {
    const whorlComm_t comm = join(context, {{"WHORL_TRANSPORTS", "shm"}});
    ASSERT_NE(comm, nullptr);
    float value = 1;
    EXPECT_EQ(failure(whorlAllReduce(&value, &value, 1, whorlFloat32, whorlSum, comm, nullptr)),
              "");
    const auto fds = shared_descriptors();
    EXPECT_FALSE(fds.empty()) << "the test looks for the wrong descriptors";
    const pid_t pid = ::getpid();
    const auto address = reinterpret_cast<std::uintptr_t>(&value);
    const auto attempt = [&] { return try_memory_of(pid, fds, address); };
    EXPECT_EQ(Other(attempt, kNobody).run(), "tried: ");
    EXPECT_THAT(mapped_shared_files(), ::testing::IsEmpty()) << "the memory has a name";
    EXPECT_THAT(listening_sockets(), ::testing::IsEmpty());
    context.barrier();
    EXPECT_EQ(failure(whorlCommDestroy(comm)), "");
  });
  EXPECT_EQ(failures_of(outcomes), "");
}

/// Whoever has the id may join, but not the memory of another user's processes.
TEST_F(OtherUserOfTheHost, WithTheIdDoesNotGetSharedMemory) {
  const auto outcomes = run_ranks(2, Mode::kProcesses, [](RankContext& context) {
    setenv("WHORL_TRANSPORTS", "shm", 1);
    const whorlUniqueId id = shared_id(context);
    if (context.rank == 1) {
      ASSERT_EQ(0, ::setuid(kNobody));
    }
    whorlComm_t comm = nullptr;
    EXPECT_THAT(failure(whorlCommInitRank(&comm, context.nranks, id, context.rank)),
                HasSubstr("must run as the same user"));
    context.barrier();
  });
  EXPECT_EQ(failures_of(outcomes), "");
}

/// Returns the abstract names of the unix sockets with which this process listens.
std::vector<std::string> listening_names() {
  const std::set<std::string> own = listening_sockets();
  std::vector<std::string> names;
  std::ifstream table("/proc/self/net/unix");
  for (std::string line; std::getline(table, line);) {
    std::istringstream in(line);
    const std::vector<std::string> words{std::istream_iterator<std::string>(in), {}};
    constexpr std::size_t kInode = 6, kPath = 7;
    if (words.size() <= kPath || !words[kPath].starts_with("@")) continue;
    if (own.contains(words[kInode])) names.push_back(words[kPath].substr(1));
  }
  return names;
}

/// The names of unix sockets are visible to all users of the host; that is of no use to them.
TEST_F(OtherUserOfTheHost, WithoutTheIdJoinsAtNoUnixSocket) {
  const auto outcomes = run_ranks(1, Mode::kProcesses, [](RankContext&) {
    whorlUniqueId id{};
    ASSERT_EQ(failure(whorlGetUniqueId(&id)), "");
    const std::vector<std::string> names = listening_names();
    Other other(
        [&names] {
          int connected = 0, answered = 0;
          for (const std::string& name : names) {
            const SocketAddress address = SocketAddress::unix_name(name);
            if (!address.valid()) continue;
            const Fd socket(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
            if (::connect(socket.get(), address.data(), address.size()) != 0) continue;
            ++connected;
            const std::string hello(104, 'w');
            ::send(socket.get(), hello.data(), hello.size(), MSG_NOSIGNAL);
            char byte = 0;
            pollfd news{socket.get(), POLLIN, 0};
            constexpr int kPatienceMs = 10'000;
            if (::poll(&news, 1, kPatienceMs) != 1 || ::recv(socket.get(), &byte, 1, 0) > 0) {
              ++answered;
            }
          }
          return std::string(connected > 0 ? "connected" : "found none") +
                 (answered > 0 ? ", got an answer" : "");
        },
        kNobody);
    EXPECT_EQ(other.run(), "connected");
    std::array<std::byte, UniqueId::kBytes> raw{};
    std::memcpy(raw.data(), &id, raw.size());
    EXPECT_EQ(join_all(*UniqueId::decode(raw), 2), "");
  });
  EXPECT_EQ(failures_of(outcomes), "");
}

} // namespace
} // namespace whorl::test
