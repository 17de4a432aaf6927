/* SPDX-License-Identifier: Apache-2.0 */
/* The report of "stoker bench save". Keys are only ever added. */
#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>

#include "bench_save.h"
#include "json_text.h"

static double
rate(uint64_t bytes, double seconds)
{
    return seconds > 0 ? (double)bytes / seconds : 0;
}

static json_t *
roots_json(const struct bench_save_request *request)
{
    json_t *roots = json_array();

    for (size_t at = 0; roots && at < request->roots.count; at++)
        if (json_array_append_new(roots, cli_json_text(request->roots.items[at])) < 0) {
            json_decref(roots);
            return NULL;
        }
    return roots;
}

static json_t *
saves_json(const struct bench_save_result *result)
{
    json_t *saves = json_array();

    for (size_t at = 0; saves && at < result->n_saves; at++)
        if (json_array_append_new(saves, json_real(result->saves[at].seconds)) < 0) {
            json_decref(saves);
            return NULL;
        }
    return saves;
}

static json_t *
loop_json(const struct bench_save_request *request, const struct bench_loop *loop)
{
    return json_pack(
        "{s:I, s:I, s:I, s:I, s:I, s:b, s:f, s:f, s:f, s:f, s:f}", "iterations",
        (json_int_t)request->iterations, "accumulation", (json_int_t)request->accumulation,
        "forward_us", (json_int_t)request->forward_us, "backward_us",
        (json_int_t)request->backward_us, "optimizer_us", (json_int_t)request->optimizer_us, "spin",
        (int)request->spin, "plain_seconds", loop->plain_seconds, "saving_seconds",
        loop->saving_seconds, "stall_seconds", loop->stall_seconds, "expected_stall_seconds",
        loop->expected_stall_seconds, "cpu_seconds", loop->cpu_seconds);
}

static json_t *
beside_json(const struct bench_beside *beside)
{
    return json_pack("{s:f, s:f, s:f, s:I, s:f}", "seconds", beside->seconds, "stall_seconds",
                     beside->stall_seconds, "stall_fraction",
                     beside->seconds > 0 ? beside->stall_seconds / beside->seconds : 0, "samples",
                     (json_int_t)beside->samples, "bytes_per_s",
                     rate(beside->bytes, beside->seconds));
}

/* Copies of one kind: the time until they were durable, null where none was measured. */
static int
set_copies(json_t *whole, const char *seconds_key, double seconds, const char *count_key,
           uint64_t count)
{
    int rc =
        json_object_set_new(whole, seconds_key, seconds > 0 ? json_real(seconds) : json_null());

    return rc == 0 ? json_object_set_new(whole, count_key, json_integer((json_int_t)count)) : rc;
}

static int
set_parts(json_t *whole, const struct bench_save_request *request,
          const struct bench_save_result *result)
{
    int rc = json_object_set_new(
        whole, "overhead_fraction",
        request->every_iteration ? json_real(result->loop.overhead_fraction) : json_null());

    if (rc == 0 && request->every_iteration)
        rc = json_object_set_new(whole, "loop", loop_json(request, &result->loop));
    if (rc == 0 && request->load) {
        rc = json_object_set_new(whole, "load_seconds", json_real(result->load_seconds));
        if (rc == 0)
            rc = json_object_set_new(whole, "load_bytes_per_s",
                                     json_real(rate(request->bytes, result->load_seconds)));
    }
    if (rc == 0 && result->load_next_seconds > 0)
        rc = json_object_set_new(whole, "load_next_seconds", json_real(result->load_next_seconds));
    if (rc == 0)
        rc = json_object_set_new(whole, "node_local", json_boolean(request->ckpt.node_local));
    if (rc == 0 && request->ckpt.partner)
        rc = set_copies(whole, "partner_seconds", result->median.partner_seconds, "partner_copies",
                        result->partner_copies);
    if (rc == 0 && request->shared)
        rc = set_copies(whole, "shared_seconds", result->median.shared_seconds, "shared_copies",
                        result->shared_copies);
    if (rc == 0 && result->beside.is_there)
        rc = json_object_set_new(whole, "loader", beside_json(&result->beside));
    return rc;
}

static int
report_json(const char *command, const struct bench_save_request *request,
            const struct bench_save_result *result)
{
    const struct bench_save *median = &result->median;
    json_t *whole = json_pack(
        "{s:I, s:I, s:f, s:f, s:f, s:f, s:f, s:f, s:f, s:f, s:o, s:s, s:o}", "bytes",
        (json_int_t)request->bytes, "tensors", (json_int_t)request->tensors, "seconds",
        median->seconds, "bytes_per_s", rate(request->bytes, median->seconds), "cpu_seconds",
        median->cpu_seconds, "call_seconds", median->call_seconds, "first_tensor_seconds",
        median->first_tensor_seconds, "captured_seconds", median->captured_seconds,
        "durable_seconds", median->seconds, "run_seconds", result->run_seconds, "roots",
        roots_json(request), "io_method", result->io_method, "saves", saves_json(result));

    if (!whole || set_parts(whole, request, result) < 0 ||
        json_dumpf(whole, stdout, JSON_INDENT(2) | JSON_REAL_PRECISION(9)) < 0) {
        json_decref(whole);
        return cli_error(command, "the result cannot be printed");
    }
    (void)fputc('\n', stdout); /* cli_finish() checks */
    json_decref(whole);
    return cli_finish(command);
}

static void
print_copies(const char *where, double seconds, double local_seconds, uint64_t n)
{
    if (seconds > 0)
        (void)printf("%s after %.3f s, %.2f x; %" PRIu64 " copies\n", where, seconds,
                     seconds / local_seconds, n);
    else
        (void)printf("%s: none of these; %" PRIu64 " copies\n", where, n);
}

static int
report_text(const char *command, const struct bench_save_request *request,
            const struct bench_save_result *result)
{
    const struct bench_save *median = &result->median;

    (void)printf("%.1f MB/s: %.3f s to durable, %.3f s to captured, %.1f ms in the call, "
                 "%.3f s of CPU (medians of %zu, %s)\n",
                 rate(request->bytes, median->seconds) * 1e-6, median->seconds,
                 median->captured_seconds, median->call_seconds * 1e3, median->cpu_seconds,
                 result->n_saves, result->io_method);
    if (request->ckpt.partner)
        print_copies("on another node", median->partner_seconds, median->seconds,
                     result->partner_copies);
    if (request->shared)
        print_copies("in the shared directory", median->shared_seconds, median->seconds,
                     result->shared_copies);
    if (request->every_iteration)
        (void)printf("every iteration: overhead %.2f %%, %.1f ms of waiting in each (model: %.1f "
                     "ms)\n",
                     result->loop.overhead_fraction * 100, result->loop.stall_seconds * 1e3,
                     result->loop.expected_stall_seconds * 1e3);
    if (request->load)
        (void)printf("loaded and compared: %.1f MB/s\n",
                     rate(request->bytes, result->load_seconds) * 1e-6);
    if (result->load_next_seconds > 0)
        (void)printf("another rank's loaded and compared: %.1f MB/s\n",
                     rate(request->bytes, result->load_next_seconds) * 1e-6);
    if (result->beside.is_there)
        (void)printf("loader beside: %.1f MB/s, stalled %.2f %% of the time\n",
                     rate(result->beside.bytes, result->beside.seconds) * 1e-6,
                     result->beside.stall_seconds / result->beside.seconds * 100);
    return cli_finish(command);
}

int
bench_save_report(const char *command, const struct bench_save_request *request,
                  const struct bench_save_result *result, bool json)
{
    return json ? report_json(command, request, result) : report_text(command, request, result);
}
