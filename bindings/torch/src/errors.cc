#include "bindings/torch/src/errors.h"

#include <string>

namespace whorl_torch {
namespace {

[[noreturn]] void throw_sentence(whorlResult_t result, std::string sentence) {
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

} // namespace

void check(whorlResult_t result, whorlComm_t comm) {
  if (result == whorlSuccess) return;
  std::string sentence = whorlGetLastError(nullptr);
  if (sentence.empty() && comm != nullptr) sentence = whorlGetLastError(comm);
  throw_sentence(result, std::move(sentence));
}

std::exception_ptr error_of(whorlComm_t comm, whorlResult_t state) {
  try {
    throw_sentence(state, whorlGetLastError(comm));
  } catch (...) {
    return std::current_exception();
  }
}

} // namespace whorl_torch
