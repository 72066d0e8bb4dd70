/* A profiler plug-in: when a communicator is destroyed, it prints how often each operation was
   called, with which algorithm, and how long it took on this rank.

     export WHORL_PROFILER_PLUGIN=build/release/examples/profiler/liboperation_table.so
     mpirun -n 4 ./program

   whorl/profiler.h describes the functions. */
#define _POSIX_C_SOURCE 200809L
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <whorl/profiler.h>

enum { kMaxRows = 256 };

/* Operations that are alike. */
typedef struct {
  const char* func;
  const char* algo;
  const char* datatype;
  size_t bytes;
  uint64_t calls;
  double seconds;
} Row;

/* What is known of one communicator. Its operations come one after the other, but sends and
 * receives overlap. */
typedef struct {
  int rank;
  char name[64];
  int rows;
  Row row[kMaxRows];
} Table;

/* An operation under way. */
typedef struct {
  Row* row;
  double began;
} Call;

static double now(void) {
  struct timespec time;
  clock_gettime(CLOCK_MONOTONIC, &time);
  return (double)time.tv_sec + (double)time.tv_nsec * 1e-9;
}

static whorlResult_t init(void** context, int* eventMask, const char* commName, uint64_t commId,
                          int nRanks, int rank) {
  (void)nRanks;
  Table* const table = calloc(1, sizeof *table);
  if (table == NULL) return whorlSystemError;
  table->rank = rank;
  if (commName[0] != '\0') {
    snprintf(table->name, sizeof table->name, "%s", commName);
  } else {
    snprintf(table->name, sizeof table->name, "%08" PRIx64, commId);
  }
  *context = table;
  *eventMask = whorlProfileColl | whorlProfileP2p;
  return whorlSuccess;
}

static Row* find_row(Table* table, const whorlProfilerEvent_v1_t* event) {
  for (int i = 0; i < table->rows; ++i) {
    Row* const row = &table->row[i];
    if (row->bytes == event->bytes && strcmp(row->func, event->func) == 0 &&
        strcmp(row->algo, event->algo) == 0 && strcmp(row->datatype, event->datatype) == 0) {
      return row;
    }
  }
  if (table->rows == kMaxRows) return NULL;
  Row* const row = &table->row[table->rows++];
  row->func = event->func;
  row->algo = event->algo;
  row->datatype = event->datatype;
  row->bytes = event->bytes;
  return row;
}

static whorlResult_t start_event(void* context, void** handle,
                                 const whorlProfilerEvent_v1_t* event) {
  Row* const row = find_row(context, event);
  Call* const call = row != NULL ? malloc(sizeof *call) : NULL;
  if (call != NULL) {
    call->row = row;
    call->began = now();
  }
  *handle = call;
  return whorlSuccess;
}

static whorlResult_t stop_event(void* context, void* handle) {
  (void)context;
  Call* const call = handle;
  if (call == NULL) return whorlSuccess; /* no room for its row */
  call->row->calls += 1;
  call->row->seconds += now() - call->began;
  free(call);
  return whorlSuccess;
}

static whorlResult_t finalize(void* context) {
  Table* const table = context;
  for (int i = 0; i < table->rows; ++i) {
    const Row* const row = &table->row[i];
    if (row->calls == 0) continue;
    fprintf(stderr,
            "communicator %s rank %d: %s %s of %zu bytes (%s): %" PRIu64 " times, %.2f us each\n",
            table->name, table->rank, row->func, row->algo, row->bytes, row->datatype, row->calls,
            row->seconds * 1e6 / (double)row->calls);
  }
  free(table);
  return whorlSuccess;
}

const whorlProfiler_v1_t whorlProfiler_v1 = {
    .name = "operation_table",
    .init = init,
    .startEvent = start_event,
    .stopEvent = stop_event,
    .finalize = finalize,
};
