#pragma once

#include <array>
#include <cstddef>
#include <string>
#include <vector>

/// An image of 8×8 pixels in 0 … 1 and the digit that it shows.
struct Example {
  std::array<double, 64> pixels;
  int digit;
};

/// Reads digits.txt (see DATA.md) and shuffles it, always in the same way. Throws
/// std::runtime_error if the file is not what it should be.
std::vector<Example> load_digits(const std::string& path);

/// A classifier with one hidden layer of rectified linear units and a softmax output, in double
/// precision. All parameters lie in one vector, and so do their gradients: data-parallel training
/// is then one allreduce per step.
class Network {
 public:
  static constexpr std::size_t kInputs = 64, kHidden = 32, kClasses = 10;
  static constexpr std::size_t kParameters =
      (kInputs + 1) * kHidden + (kHidden + 1) * kClasses; // weights and one bias for each unit

  Network() : parameters_(kParameters, 0.0) {}
  /// Random weights, the same for the same seed on every machine.
  void initialize(unsigned seed);
  /// Adds the example's gradient to `gradient` (kParameters) and returns its cross-entropy.
  double add_gradient(const Example& example, std::vector<double>& gradient) const;
  /// The most probable digit.
  [[nodiscard]] int classify(const Example& example) const;

  [[nodiscard]] std::vector<double>& parameters() { return parameters_; }

 private:
  struct Activations {
    std::array<double, kHidden> hidden;
    std::array<double, kClasses> probability;
  };
  [[nodiscard]] Activations forward(const Example& example) const;

  std::vector<double> parameters_; ///< hidden weights by unit, hidden biases, output likewise
};
