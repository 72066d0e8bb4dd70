#include "bindings/torch/src/errors.h"

#include <string>

namespace whorl_torch {

void check(whorlResult_t result, whorlComm_t comm) {
  if (result == whorlSuccess) return;
  std::string sentence = whorlGetLastError(nullptr);
  if (sentence.empty() && comm != nullptr) sentence = whorlGetLastError(comm);
  if (sentence.empty()) sentence = whorlGetErrorString(result);
  switch (result) {
    case whorlInvalidArgument:
      fail<c10::ValueError>("whorl: ", sentence);
    case whorlRemoteError:
      fail<c10::DistNetworkError>("whorl: ", sentence);
    default:
      fail<c10::DistBackendError>("whorl: ", sentence);
  }
}

} // namespace whorl_torch
