#pragma once

#include <infiniband/verbs.h>

#include <atomic>
#include <climits>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "transports/verbs/api.h"

namespace whorl::test {

/// RDMA devices in memory, behind a table of libibverbs' functions. A write is carried out when it
/// is posted, unless it is held; tests make it fail. One fabric at a time; any thread.
class FakeFabric {
 public:
  /// Device of one port.
  struct Device {
    std::string name = "fake0";
    ibv_transport_type kind = IBV_TRANSPORT_IB;
    int link_layer = IBV_LINK_LAYER_ETHERNET;
    ibv_port_state state = IBV_PORT_ACTIVE;
    std::uint16_t lid = 0;
    std::uint8_t width = 2, speed = 32; ///< codes of the port: 4 lanes of 25 Gbit/s
    std::vector<ibv_gid_entry> gids;
    int open_error = 0; ///< errno of ibv_open_device(); 0: none
    std::uint32_t inline_bytes = 256;
    int max_requests = 1024;
    int queues = INT_MAX; ///< number of queue pairs that can be made
    int max_completions = 4096;
    int connect_error = 0;               ///< errno of connecting a queue; 0: none
    int failing_connects = INT_MAX;      ///< number of queues that it concerns
    std::size_t memory_bytes = SIZE_MAX; ///< bytes that can be registered, else ENOMEM
    /// Whether children of fork() lose registered memory, as with libibverbs on older kernels.
    bool hides_from_children = false;
    std::uint8_t port_flags = 0; ///< flags of the port, such as IBV_QPF_GRH_REQUIRED
  };
  /// Failure of a write, as its completion reports it.
  struct Failure {
    ibv_wc_status status = IBV_WC_SUCCESS;
    std::uint32_t vendor_code = 0;
  };

  explicit FakeFabric(std::vector<Device> devices);
  ~FakeFabric();
  FakeFabric(const FakeFabric&) = delete;
  FakeFabric& operator=(const FakeFabric&) = delete;

  const VerbsApi& api() const noexcept { return api_; }
  Device& device(std::size_t index) { return devices_[index]; }

  // Injected failures.
  /// Fails the n-th write from now on, and flushes what its queue gets afterwards.
  void fail_write(int n, const Failure& failure);
  /// Refuses posts with this errno; 0: no longer.
  void refuse_posts(int error);
  /// Fails changes of a queue pair to `state` with this errno.
  void refuse_state(ibv_qp_state state, int error);
  /// Keeps completions of writes back; false: hands out those kept.
  void hold_completions(bool hold);
  /// Keeps completions of writes back that have not failed; false: hands out those kept.
  void hold_successes(bool hold);
  /// Keeps notices of the peer's writes back; false: hands out those kept.
  void hold_notices(bool hold);
  /// Keeps writes back, in order; false: carries out those kept.
  void hold_writes(bool hold);
  /// Keeps the writes of one device back, in order; false: carries out those kept.
  void hold_device(std::size_t index, bool hold);
  /// Fails all queues of a device, with what they still have to write.
  void fail_device(std::size_t index, const Failure& failure);
  /// Carries out so many of the held writes.
  void carry_out(int writes);
  /// Writes the words of each line in this order of their numbers, and calls `between` before each,
  /// and before and after what the write has behind the line.
  void tear_lines(std::vector<int> order, std::function<void()> between);

  // Counts.
  int writes() const { return writes_; }
  int writes_of(std::size_t device) {
    const std::lock_guard lock(mutex_);
    return writes_of_[static_cast<std::ptrdiff_t>(device)];
  }
  int completions() const { return completions_; }
  int inlined() const { return inlined_; }
  /// Counts the queue pairs, completion queues, memory regions and the like that exist.
  int objects() const { return objects_; }
  ibv_qp_attr last_attributes() const { return attributes_; }

 private:
  friend struct FakeCalls;
  struct Queue;
  struct Completions;
  struct Write {
    Queue* queue = nullptr;
    std::uint64_t id = 0, to = 0;
    std::uint32_t key = 0;
    bool signaled = false;
    bool in_line = false;
    std::optional<std::uint32_t> notice;
    std::vector<std::byte> bytes; ///< contents, if they travel in the request
    std::vector<std::pair<const std::byte*, std::size_t>> from;
    ibv_wc_status failure = IBV_WC_SUCCESS;
  };

  void execute(const Write& write);
  void complete(Queue& queue, std::uint64_t id, const Failure& failure, bool signaled);
  void fail(Queue& queue);
  void report(Completions& completions, const ibv_wc& completion);
  bool registered(std::uint32_t key, std::uint64_t address, std::size_t size) const;
  void copy(std::byte* to, const std::vector<std::byte>& bytes);
  static std::vector<std::byte> contents(
      const std::vector<std::pair<const std::byte*, std::size_t>>& pieces);

  VerbsApi api_;
  std::vector<Device> devices_;
  std::vector<std::unique_ptr<ibv_device>> handles_;
  std::vector<ibv_device*> list_;
  std::recursive_mutex mutex_;
  std::map<std::uint32_t, Queue*> queues_; ///< queues with their numbers as keys
  std::map<std::uint32_t, std::pair<std::uint64_t, std::size_t>>
      regions_; ///< begin and size of each region
  std::deque<Write> held_;
  std::map<ibv_qp_state, int> refused_states_;
  std::vector<int> tear_order_;
  std::function<void()> between_;
  std::optional<Failure> failure_;
  int fail_in_ = 0;
  int refuse_posts_ = 0;
  bool hold_writes_ = false;
  std::vector<bool> held_devices_; ///< marks of the devices that are held
  bool hold_completions_ = false;
  bool hold_successes_ = false;
  bool hold_notices_ = false;
  std::uint32_t next_number_ = 100;
  std::size_t registered_bytes_ = 0;
  std::map<std::ptrdiff_t, int> writes_of_; ///< counts of each device
  int writes_ = 0, completions_ = 0, inlined_ = 0;
  std::atomic<int> objects_{0};
  ibv_qp_attr attributes_{};
};

/// Makes an entry of a GID table.
ibv_gid_entry make_gid(std::uint32_t index, ibv_gid_type type, const std::string& address);

} // namespace whorl::test
