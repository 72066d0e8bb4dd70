#include "examples/train_digits/network.h"

#include <algorithm>
#include <cmath>
#include <fstream>
#include <random>
#include <stdexcept>

namespace {

constexpr std::size_t kHiddenBias = Network::kInputs * Network::kHidden;
constexpr std::size_t kOutputWeights = kHiddenBias + Network::kHidden;
constexpr std::size_t kOutputBias = kOutputWeights + Network::kHidden * Network::kClasses;

} // namespace

std::vector<Example> load_digits(const std::string& path) {
  std::ifstream file(path);
  std::vector<Example> examples;
  std::string pixels;
  for (Example example{}; file >> example.digit >> pixels;) {
    if (pixels.size() != 64 || example.digit < 0 || example.digit > 9) {
      throw std::runtime_error(path + " is not a file of 8x8 digits.");
    }
    for (std::size_t i = 0; i < 64; ++i) {
      const int value = pixels[i] >= 'a' ? pixels[i] - 'a' + 10 : pixels[i] - '0';
      example.pixels[i] = value / 16.0;
    }
    examples.push_back(example);
  }
  if (examples.empty()) throw std::runtime_error("Cannot read digits from " + path + ".");
  // Not std::shuffle, whose result differs between standard libraries.
  std::mt19937 random(1);
  for (std::size_t i = examples.size() - 1; i > 0; --i) {
    std::swap(examples[i], examples[random() % (i + 1)]);
  }
  return examples;
}

void Network::initialize(unsigned seed) {
  std::mt19937 random(seed);
  const auto uniform = [&](double limit) {
    return limit * (static_cast<double>(random()) / 2147483648.0 - 1);
  };
  std::fill(parameters_.begin(), parameters_.end(), 0.0);
  for (std::size_t i = 0; i < kHiddenBias; ++i) parameters_[i] = uniform(std::sqrt(6.0 / kInputs));
  for (std::size_t i = kOutputWeights; i < kOutputBias; ++i) {
    parameters_[i] = uniform(std::sqrt(6.0 / (kHidden + kClasses)));
  }
}

Network::Activations Network::forward(const Example& example) const {
  Activations out{};
  for (std::size_t h = 0; h < kHidden; ++h) {
    double sum = parameters_[kHiddenBias + h];
    for (std::size_t i = 0; i < kInputs; ++i) {
      sum += parameters_[h * kInputs + i] * example.pixels[i];
    }
    out.hidden[h] = std::max(sum, 0.0);
  }
  double total = 0;
  for (std::size_t c = 0; c < kClasses; ++c) {
    double sum = parameters_[kOutputBias + c];
    for (std::size_t h = 0; h < kHidden; ++h) {
      sum += parameters_[kOutputWeights + c * kHidden + h] * out.hidden[h];
    }
    out.probability[c] = sum;
  }
  const double largest = *std::max_element(out.probability.begin(), out.probability.end());
  for (double& p : out.probability) total += p = std::exp(p - largest);
  for (double& p : out.probability) p /= total;
  return out;
}

double Network::add_gradient(const Example& example, std::vector<double>& gradient) const {
  const Activations a = forward(example);
  std::array<double, kHidden> hidden_error{};
  for (std::size_t c = 0; c < kClasses; ++c) {
    const double error =
        a.probability[c] - (static_cast<std::size_t>(example.digit) == c ? 1.0 : 0.0);
    gradient[kOutputBias + c] += error;
    for (std::size_t h = 0; h < kHidden; ++h) {
      gradient[kOutputWeights + c * kHidden + h] += error * a.hidden[h];
      hidden_error[h] += error * parameters_[kOutputWeights + c * kHidden + h];
    }
  }
  for (std::size_t h = 0; h < kHidden; ++h) {
    if (a.hidden[h] <= 0) continue;
    gradient[kHiddenBias + h] += hidden_error[h];
    for (std::size_t i = 0; i < kInputs; ++i) {
      gradient[h * kInputs + i] += hidden_error[h] * example.pixels[i];
    }
  }
  return -std::log(std::max(a.probability[static_cast<std::size_t>(example.digit)], 1e-300));
}

int Network::classify(const Example& example) const {
  const Activations a = forward(example);
  return static_cast<int>(std::max_element(a.probability.begin(), a.probability.end()) -
                          a.probability.begin());
}
