#pragma once

#include <string>
#include <vector>

#include "topology/graph.h"
#include "topology/rings.h"

namespace whorl::topology {

/// Links between two GPUs of a machine that tests make.
struct GpuLink {
  int a = 0, b = 0, count = 1;
};

/// Writes NCCL's XML of a machine with two processors, of which each has half of the GPUs. Each GPU
/// has a PCI switch (bus id "0000:G0:00.0") with a NIC beside it. `gpu_attributes` are of <gpu>.
std::string nccl_machine(int gpus, const std::vector<GpuLink>& links,
                         const std::string& gpu_attributes = "sm=\"70\"");

/// Returns the links of the eight GPUs of a DGX-1 with V100: six of each GPU, in a cube mesh.
std::vector<GpuLink> cube_mesh();

/// Returns the text of a file of tests/fixtures.
std::string fixture(const std::string& name);

/// Numbers of parts in the next larger one; without caches for 0.
struct Sizes {
  int packages = 1, numas = 1, caches = 0, cores = 1, threads = 1;
};

/// Makes a machine of processors only. Hyperthreads are numbered after all cores, as by Linux.
Graph processors(const Sizes& sizes);

/// Reads a machine that must be well described; fails the test otherwise.
Graph read_machine(const std::string& xml);

/// Expects a machine to be the same, but for notes, after it was written in the form it was read
/// from, and to be readable in the other one.
void expect_kept(Graph graph);

/// Returns the node of a GPU by its number.
int gpu(const Graph& graph, int index);

/// Returns the text with the children of each element in another order, which `seed` chooses.
std::string shuffled(const std::string& xml, unsigned seed);

/// Expects two graphs to be equal; the message names the first node or link that differs.
void expect_equal(const Graph& graph, const Graph& expected);

/// Checks that each ring passes all GPUs once, and that no part of the machine carries more than
/// its capacity while all rings run. Returns the number of rings.
int check_rings(const Graph& graph, const std::vector<Ring>& rings);
/// Returns what rings carry together, in GB/s.
double sum_of(const std::vector<Ring>& rings);

} // namespace whorl::topology
