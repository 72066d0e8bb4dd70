#include <fmt/core.h>

#include <algorithm>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "topology/fabric_builder.h"
#include "topology/fabric_formats.h"
#include "topology/hostlist.h"

#ifdef WHORL_HAVE_YAML
#include <yaml-cpp/eventhandler.h>
#include <yaml-cpp/yaml.h>

#include <sstream>

namespace whorl::topology {
namespace {

/// Value of a YAML document: text, or items; those of a map are keys and values in turn.
struct Value {
  enum class Kind : std::uint8_t { kText, kSequence, kMap };
  Kind kind = Kind::kText;
  int line = 0;
  std::string text;
  std::vector<Value> items;
};

/// Maker of a Value out of what the parser finds. Aliases and deep nesting end in the parser's
/// exception.
class Maker : public YAML::EventHandler {
 public:
  std::optional<Value> take() { return std::exchange(document_, {}); }

  void OnDocumentStart(const YAML::Mark& /*mark*/) override {}
  void OnDocumentEnd() override {}
  void OnNull(const YAML::Mark& mark, YAML::anchor_t /*anchor*/) override {
    end(begin(mark, Value::Kind::kText));
  }
  void OnAlias(const YAML::Mark& mark, YAML::anchor_t /*anchor*/) override {
    throw YAML::ParserException(mark, "aliases are not read");
  }
  void OnScalar(const YAML::Mark& mark, const std::string& /*tag*/, YAML::anchor_t /*anchor*/,
                const std::string& text) override {
    Value value = begin(mark, Value::Kind::kText);
    value.text = text;
    end(std::move(value));
  }
  void OnSequenceStart(const YAML::Mark& mark, const std::string& /*tag*/,
                       YAML::anchor_t /*anchor*/, YAML::EmitterStyle::value /*style*/) override {
    open_.push_back(begin(mark, Value::Kind::kSequence));
  }
  void OnSequenceEnd() override { close(); }
  void OnMapStart(const YAML::Mark& mark, const std::string& /*tag*/, YAML::anchor_t /*anchor*/,
                  YAML::EmitterStyle::value /*style*/) override {
    open_.push_back(begin(mark, Value::Kind::kMap));
  }
  void OnMapEnd() override { close(); }

 private:
  static constexpr std::size_t kMaxDepth = 32;

  Value begin(const YAML::Mark& mark, Value::Kind kind) {
    if (open_.size() >= kMaxDepth) throw YAML::ParserException(mark, "values are nested too deep");
    return {.kind = kind, .line = mark.line + 1, .text = {}, .items = {}};
  }
  void end(Value value) {
    if (open_.empty()) {
      document_ = std::move(value);
    } else {
      open_.back().items.push_back(std::move(value));
    }
  }
  void close() {
    Value value = std::move(open_.back());
    open_.pop_back();
    end(std::move(value));
  }

  std::vector<Value> open_; ///< sequences and maps whose end has not come
  std::optional<Value> document_;
};

/// Values of a map by their keys; null where the map lacks the key.
using Fields = std::vector<const Value*>;

/// Topology of a file: a name, and a tree or blocks.
struct Topology {
  std::string_view name;
  bool by_default = false;
  const Value *tree = nullptr, *block = nullptr;
};

/// Reader of one document.
class YamlReader {
 public:
  explicit YamlReader(const std::string& name) : builder_(name) {}

  Result<Fabric> read(const Value& document) {
    WHORL_TRY(expect(document, Value::Kind::kSequence, "a file is a list of topologies"));
    std::vector<Topology> topologies;
    for (const Value& it : document.items) {
      const auto topology = read_topology(it);
      if (!topology.ok()) return topology.status();
      if (topology->tree != nullptr || topology->block != nullptr) topologies.push_back(*topology);
    }
    if (topologies.empty()) return builder_.error(document.line, "no topology is a tree or block");
    // The default one; of several, the one that says most.
    const auto best = std::min_element(topologies.begin(), topologies.end(),
                                       [](const Topology& a, const Topology& b) {
                                         if (a.by_default != b.by_default) return a.by_default;
                                         if ((a.tree == nullptr) != (b.tree == nullptr))
                                           return a.tree != nullptr;
                                         return natural_less(a.name, b.name);
                                       });
    if (topologies.size() > 1) {
      builder_.note(fmt::format("of {} topologies, {} is read", topologies.size(), best->name));
    }
    if (best->tree != nullptr) {
      WHORL_TRY(read_switches(*best->tree, {"switches"}, {"switch", "nodes", "children"}));
    } else {
      WHORL_TRY(read_switches(*best->block, {"blocks", "block_sizes"}, {"block", "nodes"}));
    }
    return builder_.finish(FabricFormat::kSlurmYaml);
  }

 private:
  Status expect(const Value& value, Value::Kind kind, std::string_view otherwise) const {
    return value.kind == kind ? Status() : builder_.error(value.line, otherwise);
  }

  Result<Fields> fields(const Value& map, const std::vector<std::string_view>& keys) {
    WHORL_TRY(expect(map, Value::Kind::kMap,
                     fmt::format("here belong keys and values, such as \"{}: …\"", keys.front())));
    Fields found(keys.size());
    for (std::size_t i = 0; i + 1 < map.items.size(); i += 2) {
      const Value& key = map.items[i];
      WHORL_TRY(expect(key, Value::Kind::kText, "a key is a word"));
      const auto place = std::find(keys.begin(), keys.end(), key.text);
      if (place == keys.end()) {
        builder_.note(key.line, fmt::format("{} is unknown, and left out", key.text.substr(0, 40)));
        continue;
      }
      const Value*& field = found[static_cast<std::size_t>(place - keys.begin())];
      if (field != nullptr) return builder_.error(key.line, fmt::format("{} comes twice", *place));
      field = &map.items[i + 1];
    }
    return found;
  }

  /// Returns the text of a field; empty where there is none.
  Result<std::string_view> text_of(const Value* field) const {
    if (field == nullptr) return std::string_view();
    WHORL_TRY(expect(*field, Value::Kind::kText, "here belongs a word or a list of names as text"));
    return std::string_view(field->text);
  }

  Result<Topology> read_topology(const Value& value) {
    const auto found = fields(value, {"topology", "cluster_default", "tree", "block", "flat"});
    if (!found.ok()) return found.status();
    const auto name = text_of((*found)[0]), by_default = text_of((*found)[1]);
    if (!name.ok()) return name.status();
    if (!by_default.ok()) return by_default.status();
    Topology topology{.name = *name, .tree = (*found)[2], .block = (*found)[3]};
    if (topology.tree != nullptr && topology.block != nullptr) {
      return builder_.error(value.line, "a topology is a tree or block, and not both");
    }
    topology.by_default = *by_default == "true" || *by_default == "True" || *by_default == "TRUE";
    return topology;
  }

  /// Reads the list below the first of `keys`, whose items have a name, hosts and perhaps switches.
  Status read_switches(const Value& value, const std::vector<std::string_view>& keys,
                       const std::vector<std::string_view>& item_keys) {
    const auto found = fields(value, keys);
    if (!found.ok()) return found.status();
    const Value* const list = found->front();
    if (list == nullptr) return builder_.error(value.line, fmt::format("{} are missing", keys[0]));
    WHORL_TRY(expect(*list, Value::Kind::kSequence, fmt::format("{} are a list", keys[0])));
    for (const Value& item : list->items) {
      const auto parts = fields(item, item_keys);
      if (!parts.ok()) return parts.status();
      std::vector<std::string_view> texts;
      for (const Value* part : *parts) {
        const auto text = text_of(part);
        if (!text.ok()) return text.status();
        texts.push_back(*text);
      }
      if (const Status wrong = check_name(texts[0]); !wrong.ok()) {
        return builder_.error(item.line, wrong.message());
      }
      const auto index = builder_.define(texts[0], item.line);
      if (!index.ok()) return index.status();
      WHORL_TRY(builder_.add_hosts(*index, texts[1], item.line));
      if (texts.size() > 2) WHORL_TRY(builder_.add_switches(*index, texts[2], item.line));
    }
    return {};
  }

  FabricBuilder builder_;
};

} // namespace

Result<Fabric> read_slurm_yaml(std::string_view text, const std::string& name) {
  // The parser takes up to a second for a hostile MiB.
  constexpr std::size_t kMostBytes = 4U << 20;
  if (text.size() > kMostBytes) {
    return FabricBuilder(name).error(
        1, fmt::format("the file is too large; of YAML {} MiB are read", kMostBytes >> 20U));
  }
  Maker maker;
  std::optional<Value> document;
  try {
    std::istringstream stream{std::string(text)};
    YAML::Parser parser(stream);
    parser.HandleNextDocument(maker);
    document = maker.take();
    if (!document) return FabricBuilder(name).error(1, "there is no document in YAML");
    parser.HandleNextDocument(maker);
    if (const auto second = maker.take()) {
      return FabricBuilder(name).error(second->line, "a second document is not read");
    }
  } catch (const YAML::Exception& wrong) {
    return FabricBuilder(name).error(wrong.mark.line + 1, "not well-formed YAML: " + wrong.msg);
  }
  return YamlReader(name).read(*document);
}

} // namespace whorl::topology

#else

namespace whorl::topology {

Result<Fabric> read_slurm_yaml(std::string_view /*text*/, const std::string& name) {
  return Status::error(
      Code::kInvalidUsage,
      fmt::format("{}: this is YAML, which whorl reads if it is built with yaml-cpp "
                  "(Debian: libyaml-cpp-dev); write a topology.conf instead",
                  name));
}

} // namespace whorl::topology

#endif
