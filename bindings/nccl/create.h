#pragma once

namespace whorl_nccl {

/// Frees what creations needed that the group of this thread had collected. Called when the
/// outermost group has ended.
void forget_creations() noexcept;

} // namespace whorl_nccl
