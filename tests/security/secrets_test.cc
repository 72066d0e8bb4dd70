// Tests that a secret is where it belongs and nowhere else: file modes are checked, and no secret
// is in messages, errors, traces or what the kernel shows of a process. Each runs in a process of
// its own, since a process reads WHORL_LOG once.
#include <fcntl.h>
#include <sys/stat.h>

#include <algorithm>

#include "tests/security/world.h"
#include "tests/support/run_ranks.h"

namespace whorl::test {
namespace {

using ::testing::HasSubstr;

constexpr std::string_view kSecret = "c2VjcmV0IG9mIGEgdGVzdCBvZiB3aG9ybA"; // no word of a message

std::string hex(std::span<const std::byte> bytes) {
  std::string text;
  for (const std::byte b : bytes) {
    constexpr char kDigits[] = "0123456789abcdef";
    text += kDigits[static_cast<unsigned>(b) >> 4];
    text += kDigits[static_cast<unsigned>(b) & 15];
  }
  return text;
}

std::string contents(const std::string& path) {
  std::ostringstream text;
  text << std::ifstream(path, std::ios::binary).rdbuf();
  return std::move(text).str();
}

/// Folder of a test, with a secret file and what the process writes to stderr.
class Secrets : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string name = ::testing::TempDir() + "whorl-secrets-XXXXXX";
    folder_ = ::mkdtemp(name.data());
    std::ofstream(file()) << kSecret << "\n";
    ASSERT_EQ(0, ::chmod(file().c_str(), 0600));
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }
  std::string file() const { return folder_ + "/secret"; }

  /// Requires that no form of a secret is in a text.
  static void expect_no_secret(const std::string& where, const std::string& text,
                               std::span<const std::byte> secret) {
    std::string lower = text;
    std::transform(lower.begin(), lower.end(), lower.begin(),
                   [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
    const std::string raw(reinterpret_cast<const char*>(secret.data()), secret.size());
    constexpr std::size_t kPart = 8;
    EXPECT_EQ(text.find(raw.substr(0, kPart)), text.npos) << where;
    EXPECT_EQ(lower.find(hex(secret.first(kPart))), lower.npos) << where;
  }

  static void in_a_process(const std::function<void()>& body) {
    const auto outcomes = run_ranks(1, Mode::kProcesses, [&](RankContext&) { body(); });
    EXPECT_EQ(failures_of(outcomes), "");
  }

  std::string folder_;
};

TEST_F(Secrets, AFileThatOthersMayAccessIsRefused) {
  in_a_process([&] {
    for (const mode_t mode : {0640U, 0604U, 0660U, 0610U, 0777U}) {
      ASSERT_EQ(0, ::chmod(file().c_str(), mode));
      const ScopedEnv env{{"WHORL_SECRET_FILE", file()}};
      whorlComm_t comm = nullptr;
      EXPECT_THAT(failure(whorlCommInitAddress(&comm, 2, "127.0.0.1:1", 1, nullptr)),
                  HasSubstr("chmod 600"));
    }
  });
}

TEST_F(Secrets, AreInNoMessageErrorOrTrace) {
  in_a_process([&] {
    const std::string log = folder_ + "/log", trace = folder_ + "/trace-%r";
    const int saved = ::dup(2);
    const int captured = ::open(log.c_str(), O_CREAT | O_RDWR | O_CLOEXEC, 0600);
    ASSERT_GE(captured, 0);
    const ScopedEnv env{{"WHORL_LOG", "info"},
                        {"WHORL_TRACE", trace},
                        {"WHORL_TRANSPORTS", "tcp"},
                        {"WHORL_SECRET_FILE", file()}};
    ::dup2(captured, 2);
    const UniqueId id = make_id();
    const std::string met = join_all(id, 2, [](whorlComm_t comm) {
      float value = 1;
      EXPECT_EQ(failure(whorlAllReduce(&value, &value, 1, whorlFloat32, whorlSum, comm, nullptr)),
                "");
    });
    std::string errors;
    UniqueId wrong = make_id();
    wrong.identity.secret[0] ^= std::byte{1};
    errors += join(wrong, 1, 2, 1000);
    whorlComm_t comm = nullptr;
    whorlConfig_t config = WHORL_CONFIG_INITIALIZER;
    config.timeoutMs = 500;
    errors += failure(whorlCommInitAddress(&comm, 2, "127.0.0.1:9", 1, &config));
    ::dup2(saved, 2);
    ::close(saved);
    ::close(captured);
    EXPECT_EQ(met, "");
    EXPECT_THAT(errors, HasSubstr("wrong secret"));
    const std::string text = contents(log);
    EXPECT_THAT(text, HasSubstr("connected by TCP")) << "the log has been captured";
    ASSERT_TRUE(std::filesystem::exists(folder_ + "/trace-0"));
    const auto file_secret = std::as_bytes(std::span(kSecret));
    for (const auto& [where, all] : {std::pair<std::string, std::string>("log", text),
                                     {"errors", errors},
                                     {"trace", contents(folder_ + "/trace-0")},
                                     {"environment", contents("/proc/self/environ")},
                                     {"command line", contents("/proc/self/cmdline")}}) {
      expect_no_secret(where, all, id.identity.secret);
      expect_no_secret(where, all, wrong.identity.secret);
      expect_no_secret(where, all, file_secret);
    }
  });
}

} // namespace
} // namespace whorl::test
