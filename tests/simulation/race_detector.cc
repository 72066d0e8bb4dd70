#include "simulation/race_detector.h"

namespace whorl::simulation {

RaceDetector::RaceDetector()
    : pages_(Arena::kBytes / Arena::kPageBytes), in_use_(Arena::kBytes / Arena::kPageBytes) {}

void RaceDetector::clear() {
  for (const std::size_t page : used_) {
    pages_[page]->fill({});
    in_use_[page] = false;
  }
  used_.clear();
}

RaceDetector::Word& RaceDetector::word(std::size_t index) {
  const std::size_t page = index / kPageWords;
  if (!in_use_[page]) {
    in_use_[page] = true;
    used_.push_back(page);
    if (pages_[page] == nullptr) pages_[page] = std::make_unique<Page>();
  }
  return (*pages_[page])[index % kPageWords];
}

std::optional<Race> RaceDetector::read(std::size_t fibre, const View& view, std::size_t offset,
                                       std::size_t bytes) {
  if (bytes == 0) return std::nullopt;
  for (std::size_t i = offset / kWordBytes; i <= (offset + bytes - 1) / kWordBytes; ++i) {
    Word& here = word(i);
    if (here.written > view.clock[here.writer]) return Race{i * kWordBytes, here.writer, true};
    here.read[fibre] = view.clock[fibre];
  }
  return std::nullopt;
}

std::optional<Race> RaceDetector::write(std::size_t fibre, const View& view, std::size_t offset,
                                        std::size_t bytes) {
  if (bytes == 0) return std::nullopt;
  for (std::size_t i = offset / kWordBytes; i <= (offset + bytes - 1) / kWordBytes; ++i) {
    Word& here = word(i);
    if (here.written > view.clock[here.writer]) return Race{i * kWordBytes, here.writer, true};
    for (std::size_t other = 0; other < kMaxFibres; ++other) {
      if (here.read[other] > view.clock[other]) return Race{i * kWordBytes, other, false};
    }
    here.written = view.clock[fibre];
    here.writer = static_cast<std::uint32_t>(fibre);
  }
  return std::nullopt;
}

} // namespace whorl::simulation
