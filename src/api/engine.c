/* SPDX-License-Identifier: Apache-2.0 */
/* Engines and data sets, exported: argument checks, option versions, error text. */
#include <stoker/engine.h>

#include <errno.h>
#include <stddef.h>
#include <string.h>

#include "api/handles.h"
#include "api/opts.h"
#include "base/error.h"
#include "base/mem.h"
#include "format/extents.h"
#include "comm/comm.h"

static const struct sti_opts_type engine_opts_type = {"stk_engine_opts", sizeof(stk_engine_opts),
                                                      sizeof(stk_engine_opts)};
static const struct sti_opts_type comm_opts_type = {"stk_comm_opts", sizeof(stk_comm_opts),
                                                    sizeof(stk_comm_opts)};
static const struct sti_opts_type dataset_opts_type = {"stk_dataset_opts", sizeof(stk_dataset_opts),
                                                       sizeof(stk_dataset_opts)};

int
stk_engine_open(stk_engine **ret_engine, const stk_engine_opts *opts, stk_error *err)
{
    stk_engine_opts own;
    stk_comm_opts comm;

    if (!ret_engine)
        return sti_error_set(err, -EINVAL, "ret_engine is NULL");
    int rc = sti_opts_take(&own, &engine_opts_type, opts, err);
    if (rc == 0 && own.comm) {
        rc = sti_opts_take(&comm, &comm_opts_type, own.comm, err);
        own.comm = &comm;
    }
    if (rc < 0)
        return rc;
    stk_engine *handle = sti_mem_new(1, sizeof(*handle));
    if (!handle)
        return sti_error_set(err, -ENOMEM, "no memory for the engine");
    rc = sti_engine_open(&handle->engine, &own, err);
    if (rc < 0) {
        sti_mem_free(handle);
        return rc;
    }
    *ret_engine = handle;
    return 0;
}

void
stk_engine_close(stk_engine *engine)
{
    if (!engine)
        return;
    sti_engine_close(engine->engine);
    sti_mem_free(engine);
}

const char *
stk_engine_io_method(const stk_engine *engine)
{
    return engine ? sti_engine_method_name(engine->engine) : NULL;
}

int
stk_comm_hub_new(stk_comm_hub **ret_hub, uint32_t world, stk_error *err)
{
    struct sti_comm_hub *hub;

    if (!ret_hub)
        return sti_error_set(err, -EINVAL, "ret_hub is NULL");
    int rc = sti_comm_hub_new(&hub, world);
    if (rc < 0)
        return sti_error_set(err, rc, "no place to meet for %u ranks: %s", world,
                             sti_error_text(rc));
    *ret_hub = (stk_comm_hub *)hub;
    return 0;
}

void
stk_comm_hub_free(stk_comm_hub *hub)
{
    sti_comm_hub_free((struct sti_comm_hub *)hub);
}

int
stk_engine_get_stats(stk_engine *engine, stk_engine_stats *stats)
{
    stk_engine_stats full = {STK_ENGINE_STATS_INIT};

    if (!engine || !stats || stats->size < offsetof(stk_engine_stats, mapped_bytes) ||
        stats->size > sizeof(full))
        return -EINVAL;
    sti_engine_stats(engine->engine, &full);
    full.size = stats->size;
    memcpy(stats, &full, stats->size);
    return 0;
}

int
stk_dataset_open(stk_dataset **ret_dataset, stk_engine *engine, const char *path,
                 const stk_dataset_opts *opts, stk_error *err)
{
    stk_dataset_opts own;
    struct sti_aio *aio;

    if (!ret_dataset || !engine || !path)
        return sti_error_set(err, -EINVAL, "ret_dataset, engine and path are required");
    if (path[0] == '\0')
        return sti_error_set(err, -EINVAL, "the data set's path is empty");
    int rc = sti_opts_take(&own, &dataset_opts_type, opts, err);
    if (rc < 0)
        return rc;
    stk_dataset *handle = sti_mem_new(1, sizeof(*handle));
    if (!handle)
        return sti_error_set(err, -ENOMEM, "no memory for the data set");
    /* Indexing waits for its own operations on the calling thread; the loop goes on. */
    rc = sti_engine_aio_open(engine->engine, &aio, err);
    if (rc == 0) {
        rc = sti_dataset_open(&handle->dataset, aio, path, &own,
                              sti_engine_cache_dir(engine->engine), err);
        sti_aio_close(aio);
    }
    if (rc < 0) {
        sti_mem_free(handle);
        return rc;
    }
    *ret_dataset = handle;
    return 0;
}

int
stk_dataset_extents(stk_dataset **ret_dataset, stk_engine *engine, const stk_extent *extents,
                    uint64_t n, stk_error *err)
{
    struct sti_aio *aio;

    if (!ret_dataset || !engine || !extents)
        return sti_error_set(err, -EINVAL, "ret_dataset, engine and extents are required");
    stk_dataset *handle = sti_mem_new(1, sizeof(*handle));
    if (!handle)
        return sti_error_set(err, -ENOMEM, "no memory for the data set");
    int rc = sti_engine_aio_open(engine->engine, &aio, err);
    if (rc == 0) {
        rc = sti_extents_open(&handle->dataset, aio, extents, n, err);
        sti_aio_close(aio);
    }
    if (rc < 0) {
        sti_mem_free(handle);
        return rc;
    }
    *ret_dataset = handle;
    return 0;
}

void
stk_dataset_close(stk_dataset *dataset)
{
    if (!dataset)
        return;
    sti_dataset_close(dataset->dataset);
    sti_mem_free(dataset);
}

int
stk_dataset_get_info(const stk_dataset *dataset, stk_dataset_info *info)
{
    if (!dataset || !info || info->size != sizeof(*info))
        return -EINVAL;
    sti_dataset_info(dataset->dataset, info);
    return 0;
}

const char *
stk_dataset_class_name(const stk_dataset *dataset, uint32_t class_idx)
{
    return dataset ? sti_dataset_class_name(dataset->dataset, class_idx) : NULL;
}

const char *
stk_dataset_field_name(const stk_dataset *dataset, uint32_t field_idx)
{
    if (!dataset || field_idx >= sti_dataset_fields(dataset->dataset))
        return NULL;
    return sti_dataset_field_name(dataset->dataset, field_idx);
}

const char *
stk_dataset_sample_name(const stk_dataset *dataset, uint64_t sample)
{
    if (!dataset || sample >= sti_dataset_count(dataset->dataset))
        return NULL;
    return sti_dataset_sample_name(dataset->dataset, sample);
}

int
stk_dataset_locate(const stk_dataset *dataset, uint64_t sample, char *path, size_t path_size,
                   uint64_t *ret_offset, uint64_t *ret_bytes, int64_t *ret_label)
{
    struct sti_extent extent;

    if (!dataset || !path || path_size == 0)
        return -EINVAL;
    if (sample >= sti_dataset_count(dataset->dataset))
        return -ERANGE;
    int rc = sti_dataset_extent(dataset->dataset, sample, &extent);
    if (rc == 0)
        rc = sti_dataset_path(dataset->dataset, sample, path, path_size);
    if (rc < 0)
        return rc;
    if (ret_offset)
        *ret_offset = extent.offset;
    if (ret_bytes)
        *ret_bytes = extent.length;
    if (ret_label)
        *ret_label = sti_dataset_label(dataset->dataset, sample);
    return 0;
}
