#include "perf/common/workload.h"

#include <array>

namespace perf {
namespace {

/// List of parameters under dotted prefixes, to which each layer adds with one call.
class Model {
 public:
  void add(const std::string& name, std::size_t elements) {
    parameters_.push_back({name, elements});
  }
  void linear(const std::string& name, std::size_t in, std::size_t out) {
    add(name + ".weight", in * out);
    add(name + ".bias", out);
  }
  void conv(const std::string& name, std::size_t in, std::size_t out, std::size_t kernel) {
    add(name + ".weight", in * out * kernel * kernel);
  }
  /// Adds a batch or layer norm: scale and shift.
  void norm(const std::string& name, std::size_t features) {
    add(name + ".weight", features);
    add(name + ".bias", features);
  }
  std::vector<Parameter> take() { return std::move(parameters_); }

 private:
  std::vector<Parameter> parameters_;
};

/// Returns the parameters of ResNet-50 (v1.5) for 1000 classes: a stem, then 3 + 4 + 6 + 3
/// bottleneck blocks whose output is four times as wide as their middle; the first block of each
/// stage also projects its shortcut.
std::vector<Parameter> resnet50() {
  Model model;
  model.conv("conv1", 3, 64, 7);
  model.norm("bn1", 64);
  constexpr std::array<int, 4> kBlocks{3, 4, 6, 3};
  std::size_t in = 64, width = 64;
  for (std::size_t stage = 0; stage < kBlocks.size(); ++stage, width *= 2) {
    for (int block = 0; block < kBlocks[stage]; ++block) {
      const std::string prefix =
          "layer" + std::to_string(stage + 1) + "." + std::to_string(block) + ".";
      const std::size_t out = 4 * width;
      model.conv(prefix + "conv1", in, width, 1);
      model.norm(prefix + "bn1", width);
      model.conv(prefix + "conv2", width, width, 3);
      model.norm(prefix + "bn2", width);
      model.conv(prefix + "conv3", width, out, 1);
      model.norm(prefix + "bn3", out);
      if (block == 0) {
        model.conv(prefix + "downsample.0", in, out, 1);
        model.norm(prefix + "downsample.1", out);
      }
      in = out;
    }
  }
  model.linear("fc", in, 1000);
  return model.take();
}

/// Returns the parameters of BERT-base, uncased, with pooler: 12 layers, 768 wide, 30522 tokens.
std::vector<Parameter> bert_base() {
  constexpr std::size_t kWidth = 768, kInner = 4 * kWidth;
  Model model;
  model.add("embeddings.word", 30522 * kWidth);
  model.add("embeddings.position", 512 * kWidth);
  model.add("embeddings.token_type", 2 * kWidth);
  model.norm("embeddings.norm", kWidth);
  for (int layer = 0; layer < 12; ++layer) {
    const std::string prefix = "layer." + std::to_string(layer) + ".";
    for (const char* name : {"query", "key", "value", "attention.output"}) {
      model.linear(prefix + name, kWidth, kWidth);
    }
    model.norm(prefix + "attention.norm", kWidth);
    model.linear(prefix + "intermediate", kWidth, kInner);
    model.linear(prefix + "output", kInner, kWidth);
    model.norm(prefix + "output.norm", kWidth);
  }
  model.linear("pooler", kWidth, kWidth);
  return model.take();
}

/// Returns the parameters of GPT-2 small: 12 layers, 768 wide, 50257 tokens, 1024 positions; the
/// output layer is tied to the token embedding.
std::vector<Parameter> gpt2() {
  constexpr std::size_t kWidth = 768;
  Model model;
  model.add("wte", 50257 * kWidth);
  model.add("wpe", 1024 * kWidth);
  for (int layer = 0; layer < 12; ++layer) {
    const std::string prefix = "h." + std::to_string(layer) + ".";
    model.norm(prefix + "ln_1", kWidth);
    model.linear(prefix + "attn.c_attn", kWidth, 3 * kWidth);
    model.linear(prefix + "attn.c_proj", kWidth, kWidth);
    model.norm(prefix + "ln_2", kWidth);
    model.linear(prefix + "mlp.c_fc", kWidth, 4 * kWidth);
    model.linear(prefix + "mlp.c_proj", 4 * kWidth, kWidth);
  }
  model.norm("ln_f", kWidth);
  return model.take();
}

} // namespace

std::vector<Parameter> model_parameters(const std::string& model) {
  if (model == "resnet50") return resnet50();
  if (model == "bert-base") return bert_base();
  if (model == "gpt2") return gpt2();
  return {};
}

bool known_workload(const std::string& model) { return !model_parameters(model).empty(); }

std::string workload_names() { return "resnet50, bert-base, gpt2"; }

std::vector<std::size_t> gradient_buckets(const std::vector<Parameter>& parameters,
                                          std::size_t element_bytes, std::size_t first_cap_bytes,
                                          std::size_t cap_bytes) {
  std::vector<std::size_t> buckets;
  std::size_t elements = 0;
  for (auto parameter = parameters.rbegin(); parameter != parameters.rend(); ++parameter) {
    elements += parameter->elements;
    const std::size_t cap = buckets.empty() ? first_cap_bytes : cap_bytes;
    if (elements * element_bytes >= cap) {
      buckets.push_back(elements);
      elements = 0;
    }
  }
  if (elements > 0) buckets.push_back(elements);
  return buckets;
}

} // namespace perf
