#pragma once

namespace whorl_nccl {

/// Frees the contexts of creations that this thread's group had collected. Called when the
/// outermost group has ended.
void forget_creations() noexcept;

} // namespace whorl_nccl
