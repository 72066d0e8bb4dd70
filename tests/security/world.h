#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <set>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include "bootstrap/unique_id.h"
#include "tests/support/thread_world.h"

namespace whorl::test {

/// Returns the address of a root that other hosts would use: a port, or, on a host that has no
/// address but loopback, the root's unix socket.
inline SocketAddress outer_address(const std::vector<SocketAddress>& addresses) {
  const auto port = std::find_if(addresses.begin(), addresses.end(),
                                 [](const SocketAddress& it) { return it.family() == AF_INET; });
  return port != addresses.end() ? *port : addresses.front();
}

/// Makes an id, and returns its contents with outer_address() as its only address.
inline UniqueId make_id() {
  whorlUniqueId bytes{};
  EXPECT_EQ(failure(whorlGetUniqueId(&bytes)), "");
  std::array<std::byte, UniqueId::kBytes> raw{};
  std::memcpy(raw.data(), &bytes, raw.size());
  UniqueId id = *UniqueId::decode(raw);
  id.addresses = {outer_address(id.addresses)};
  return id;
}

inline whorlUniqueId bytes_of(const UniqueId& id) {
  whorlUniqueId bytes{};
  const auto raw = id.encode();
  EXPECT_TRUE(raw.ok());
  std::memcpy(&bytes, raw->data(), raw->size());
  return bytes;
}

/// Joins as one rank, with a timeout, and leaves. Returns the error; "" for success.
inline std::string join(const UniqueId& id, int rank, int nranks, int timeout_ms = 30'000,
                        const std::function<void(whorlComm_t)>& meanwhile = {}) {
  whorlConfig_t config = WHORL_CONFIG_INITIALIZER;
  config.timeoutMs = timeout_ms;
  whorlComm_t comm = nullptr;
  const std::string text =
      failure(whorlCommInitRankConfig(&comm, nranks, bytes_of(id), rank, &config));
  if (!text.empty()) return text;
  if (meanwhile) meanwhile(comm);
  return failure(whorlCommDestroy(comm));
}

/// Runs `body` in a thread for each rank. Returns what each has returned.
inline std::vector<std::string> errors_of(int nranks,
                                          const std::function<std::string(int rank)>& body) {
  std::vector<std::string> errors(static_cast<std::size_t>(nranks));
  std::vector<std::thread> ranks;
  for (int rank = 0; rank < nranks; ++rank) {
    ranks.emplace_back([&, rank] { errors[static_cast<std::size_t>(rank)] = body(rank); });
  }
  for (std::thread& rank : ranks) rank.join();
  return errors;
}

/// Joins as all ranks of threads. Returns the errors; "" if all have succeeded.
inline std::string join_all(const UniqueId& id, int nranks,
                            const std::function<void(whorlComm_t)>& meanwhile = {}) {
  std::string all;
  for (const std::string& error :
       errors_of(nranks, [&](int rank) { return join(id, rank, nranks, 30'000, meanwhile); })) {
    all += error;
  }
  return all;
}

/// Returns the inodes of this process's sockets.
inline std::set<std::string> own_sockets() {
  std::set<std::string> inodes;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
    std::error_code gone;
    const std::string link = std::filesystem::read_symlink(entry.path(), gone);
    if (link.starts_with("socket:[")) inodes.insert(link.substr(8, link.size() - 9));
  }
  return inodes;
}

/// Returns the inodes of the sockets with which this process listens.
inline std::set<std::string> listening_sockets() {
  const std::set<std::string> own = own_sockets();
  std::set<std::string> found;
  for (const char* const table : {"tcp", "tcp6", "unix"}) {
    const bool is_unix = std::string(table) == "unix";
    std::ifstream file(std::string("/proc/self/net/") + table);
    std::string line;
    std::getline(file, line); // names of the columns
    while (std::getline(file, line)) {
      std::istringstream in(line);
      const std::vector<std::string> words{std::istream_iterator<std::string>(in), {}};
      const std::size_t inode = is_unix ? 6 : 9, state = 3;
      if (words.size() <= inode || !own.contains(words[inode])) continue;
      const bool listens = is_unix ? words[state] == "00010000" : words[state] == "0A";
      if (listens) found.insert(words[inode]);
    }
  }
  return found;
}

} // namespace whorl::test
