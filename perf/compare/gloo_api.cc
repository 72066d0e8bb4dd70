// C API on top of Gloo; see peer_api.h. Gloo's collectives with their default algorithms over TCP,
// one process per rank. Environment: RANK, WORLD_SIZE; GLOO_STORE, an empty directory through which
// the ranks find each other; GLOO_ADDRESS, this host's address (default: 127.0.0.1). The timeout of
// the configuration is Gloo's own.

#include <gloo/allgather.h>
#include <gloo/allreduce.h>
#include <gloo/alltoall.h>
#include <gloo/barrier.h>
#include <gloo/broadcast.h>
#include <gloo/math.h>
#include <gloo/reduce.h>
#include <gloo/rendezvous/context.h>
#include <gloo/rendezvous/file_store.h>
#include <gloo/transport/tcp/device.h>

#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <stdexcept>

#include "perf/compare/peer_api.h"

struct whorlComm {
  std::shared_ptr<gloo::Context> context;
};

namespace {

using Function = void (*)(void*, const void*, const void*, std::size_t);

/// Calls `body` with a value of the element type, for types that can be reduced here.
template <class Body>
void with_type(whorlDataType_t datatype, whorlRedOp_t op, Body&& body) {
  switch (datatype) {
    case whorlFloat32:
      return body(float{}, op);
    case whorlFloat64:
      return body(double{}, op);
    case whorlInt32:
      return body(std::int32_t{}, op);
    case whorlInt64:
      return body(std::int64_t{}, op);
    default:
      throw std::runtime_error("only float, double, int32 and int64 are reduced here");
  }
}

template <class T>
Function function_for(whorlRedOp_t op) {
  switch (op) {
    case whorlSum:
      return &gloo::sum<T>;
    case whorlProd:
      return &gloo::product<T>;
    case whorlMax:
      return &gloo::max<T>;
    case whorlMin:
      return &gloo::min<T>;
    default:
      throw std::runtime_error("Gloo has no such operator");
  }
}

/// Casts an input to a pointer to mutable data, which Gloo requires although it only reads inputs.
template <class T>
T* mutable_input(const void* send) {
  return static_cast<T*>(const_cast<void*>(send));
}

int number_from(const char* variable) {
  const char* text = std::getenv(variable);
  if (text == nullptr) throw std::runtime_error(std::string(variable) + " must be set");
  return std::atoi(text);
}

} // namespace

whorlResult_t whorlCommInitEnv(whorlComm_t* comm, whorlConfig_t* config) {
  return peer::guarded([&] {
    const char* address = std::getenv("GLOO_ADDRESS");
    const char* store_path = std::getenv("GLOO_STORE");
    if (store_path == nullptr) throw std::runtime_error("GLOO_STORE must be set");
    gloo::transport::tcp::attr attributes;
    attributes.hostname = address != nullptr ? address : "127.0.0.1";
    gloo::rendezvous::FileStore store(store_path);
    const auto context =
        std::make_shared<gloo::rendezvous::Context>(number_from("RANK"), number_from("WORLD_SIZE"));
    auto device = gloo::transport::tcp::CreateDevice(attributes);
    if (config != nullptr && config->timeoutMs > 0) {
      context->setTimeout(std::chrono::milliseconds(config->timeoutMs));
    }
    context->connectFullMesh(store, device);
    *comm = new whorlComm{context};
  });
}

// Destroys the communicator after a barrier: a rank that closes its connections early would break
// the last operation of the others.
whorlResult_t whorlCommDestroy(whorlComm_t comm) {
  return peer::guarded([&] {
    gloo::BarrierOptions options(comm->context);
    gloo::barrier(options);
    delete comm;
  });
}
whorlResult_t whorlCommAbort(whorlComm_t comm) {
  return peer::guarded([&] { delete comm; });
}
whorlResult_t whorlCommUserRank(const whorlComm_t comm, int* rank) {
  *rank = comm->context->rank;
  return whorlSuccess;
}
whorlResult_t whorlCommCount(const whorlComm_t comm, int* count) {
  *count = comm->context->size;
  return whorlSuccess;
}

whorlResult_t whorlBarrier(whorlComm_t comm, void*) {
  return peer::guarded([&] {
    gloo::BarrierOptions options(comm->context);
    gloo::barrier(options);
  });
}

whorlResult_t whorlAllReduce(const void* send, void* recv, size_t count, whorlDataType_t datatype,
                             whorlRedOp_t redop, whorlComm_t comm, void*) {
  return peer::guarded([&] {
    with_type(datatype, redop, [&](auto zero, whorlRedOp_t op) {
      using T = decltype(zero);
      gloo::AllreduceOptions options(comm->context);
      if (send != recv) options.setInput(mutable_input<T>(send), count);
      options.setOutput(static_cast<T*>(recv), count);
      options.setReduceFunction(function_for<T>(op));
      gloo::allreduce(options);
    });
  });
}

whorlResult_t whorlReduce(const void* send, void* recv, size_t count, whorlDataType_t datatype,
                          whorlRedOp_t redop, int root, whorlComm_t comm, void*) {
  return peer::guarded([&] {
    with_type(datatype, redop, [&](auto zero, whorlRedOp_t op) {
      using T = decltype(zero);
      gloo::ReduceOptions options(comm->context);
      options.setRoot(root);
      options.setReduceFunction(function_for<T>(op));
      // Every rank needs an output, which Gloo uses as scratch space; without an input it is the
      // input, too.
      static auto* scratch = new std::vector<T>;
      T* out = static_cast<T*>(recv);
      if (comm->context->rank != root) {
        scratch->resize(std::max(scratch->size(), count));
        out = scratch->data();
      }
      if (send != recv) options.setInput(mutable_input<T>(send), count);
      options.setOutput(out, count);
      gloo::reduce(options);
    });
  });
}

whorlResult_t whorlReduceScatter(const void*, void*, size_t, whorlDataType_t, whorlRedOp_t,
                                 whorlComm_t, void*) {
  return peer::refuse("Gloo has no reduce-scatter that leaves its input alone");
}

whorlResult_t whorlBroadcast(const void* send, void* recv, size_t count, whorlDataType_t datatype,
                             int root, whorlComm_t comm, void*) {
  return peer::guarded([&] {
    gloo::BroadcastOptions options(comm->context);
    options.setRoot(root);
    const std::size_t bytes = count * peer::size_of(datatype);
    if (comm->context->rank == root && send != recv) {
      options.setInput(mutable_input<char>(send), bytes);
    }
    options.setOutput(static_cast<char*>(recv), bytes);
    gloo::broadcast(options);
  });
}

whorlResult_t whorlAllGather(const void* send, void* recv, size_t count, whorlDataType_t datatype,
                             whorlComm_t comm, void*) {
  return peer::guarded([&] {
    gloo::AllgatherOptions options(comm->context);
    const std::size_t bytes = count * peer::size_of(datatype);
    const auto size = static_cast<std::size_t>(comm->context->size);
    const auto own = static_cast<std::size_t>(comm->context->rank) * bytes;
    if (send != static_cast<const char*>(recv) + own) {
      options.setInput(mutable_input<char>(send), bytes);
    }
    options.setOutput(static_cast<char*>(recv), bytes * size);
    gloo::allgather(options);
  });
}

whorlResult_t whorlAlltoAll(const void* send, void* recv, size_t count, whorlDataType_t datatype,
                            whorlComm_t comm, void*) {
  return peer::guarded([&] {
    gloo::AlltoallOptions options(comm->context);
    const std::size_t bytes =
        count * peer::size_of(datatype) * static_cast<std::size_t>(comm->context->size);
    options.setInput(mutable_input<char>(send), bytes);
    options.setOutput(static_cast<char*>(recv), bytes);
    gloo::alltoall(options);
  });
}
