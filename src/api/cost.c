/* SPDX-License-Identifier: Apache-2.0 */
/* Costs and runs told beforehand, exported: argument checks and option versions. */
#include <stoker/cost.h>

#include <errno.h>
#include <inttypes.h>

#include "api/explain_opts.h"
#include "api/handles.h"
#include "api/opts.h"
#include "base/error.h"
#include "engine/probe.h"
#include "loader/explain.h"

#define FILE_DEFAULT_BYTES (UINT64_C(64) << 20)
#define FILE_LEAST_BYTES (UINT64_C(1) << 20)
#define FILE_MOST_BYTES (UINT64_C(64) << 30)

static const struct sti_opts_type probe_opts_type = {"stk_probe_opts", sizeof(stk_probe_opts),
                                                     sizeof(stk_probe_opts)};

static int
check_probe(stk_probe_opts *opts, stk_error *err)
{
    if (opts->file_bytes != 0 &&
        (opts->file_bytes < FILE_LEAST_BYTES || opts->file_bytes > FILE_MOST_BYTES))
        return sti_error_set(err, -EINVAL,
                             "file_bytes %" PRIu64 " is not in %" PRIu64 " .. %" PRIu64,
                             opts->file_bytes, FILE_LEAST_BYTES, FILE_MOST_BYTES);
    if (opts->point_ms != 0 && (opts->point_ms < 10 || opts->point_ms > 60000))
        return sti_error_set(err, -EINVAL, "point_ms %" PRIu32 " is not in 10 .. 60000",
                             opts->point_ms);
    if (opts->reserved != 0)
        return sti_error_set(err, -EINVAL, "reserved must be 0");
    if (opts->file_bytes == 0)
        opts->file_bytes = FILE_DEFAULT_BYTES;
    if (opts->point_ms == 0)
        opts->point_ms = 200;
    return 0;
}

int
stk_probe(stk_engine *engine, const char *path, const stk_probe_opts *opts, stk_probe_point *points,
          stk_error *err)
{
    stk_probe_opts own;
    struct sti_aio *aio = NULL;

    if (!engine || !path || path[0] == '\0' || !points)
        return sti_error_set(err, -EINVAL, "engine, path and points are required");
    int rc = sti_opts_take(&own, &probe_opts_type, opts, err);
    if (rc == 0)
        rc = check_probe(&own, err);
    if (rc == 0)
        rc = sti_engine_aio_open(engine->engine, &aio, err);
    if (rc < 0)
        return rc;
    rc = sti_probe(aio, path, &own, points, err);
    sti_aio_close(aio);
    return rc;
}

int
stk_loader_get_costs(stk_loader *loader, stk_costs *costs)
{
    if (!loader || !costs || costs->size != sizeof(*costs))
        return -EINVAL;
    sti_loader_costs(loader->loader, costs);
    return 0;
}

int
stk_explain(const stk_dataset *dataset, const stk_explain_opts *opts, stk_explained *epochs,
            uint32_t n_epochs, stk_explained *ret_run, stk_error *err)
{
    struct sti_explain_opts taken;

    if (!dataset || !opts || !ret_run || (n_epochs > 0 && !epochs))
        return sti_error_set(err, -EINVAL, "dataset, opts and ret_run are required");
    int rc = sti_explain_opts_take(&taken, opts, err);
    if (rc < 0)
        return rc;
    return sti_explain(dataset->dataset, &taken.own, epochs, n_epochs, ret_run, err);
}
