#include "transports/ucx/make.h"

#ifdef WHORL_HAVE_UCX
#include "transports/ucx/transport.h"
#endif

namespace whorl {

#ifdef WHORL_HAVE_UCX

Result<std::unique_ptr<Transport>> make_ucx_transport() {
  return std::unique_ptr<Transport>(std::make_unique<UcxTransport>());
}

Status check_ucx() {
  const UcxEnvironment environment;
  return load_ucx().status();
}

#else

Result<std::unique_ptr<Transport>> make_ucx_transport() { return check_ucx(); }

Status check_ucx() {
  return Status::error(Code::kInvalidUsage,
                       "WHORL_TRANSPORTS asks for ucx, but this whorl was built without UCX: build "
                       "it where UCX's headers are (Debian's package is libucx-dev, Meson's option "
                       "-Ducx=enabled), or leave ucx out of WHORL_TRANSPORTS");
}

#endif

} // namespace whorl
