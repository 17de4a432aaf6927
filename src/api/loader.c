/* SPDX-License-Identifier: Apache-2.0 */
/* Loaders, exported: argument checks and option versions. */
#include <stoker/loader.h>

#include <errno.h>

#include "api/handles.h"
#include "api/opts.h"
#include "base/error.h"
#include "base/mem.h"

static const struct sti_opts_type loader_opts_type = {"stk_loader_opts", sizeof(stk_loader_opts),
                                                      sizeof(stk_loader_opts)};
static const struct sti_opts_type order_opts_type = {"stk_order_opts", sizeof(stk_order_opts),
                                                     sizeof(stk_order_opts)};

int
stk_loader_open(stk_loader **ret_loader, stk_engine *engine, stk_dataset *dataset,
                const stk_loader_opts *opts, stk_error *err)
{
    stk_loader_opts own;
    stk_order_opts order;

    if (!ret_loader || !engine || !dataset || !opts)
        return sti_error_set(err, -EINVAL, "ret_loader, engine, dataset and opts are required");
    int rc = sti_opts_take(&own, &loader_opts_type, opts, err);
    if (rc == 0)
        rc = sti_opts_take(&order, &order_opts_type, own.order, err);
    if (rc < 0)
        return rc;
    stk_loader *handle = sti_mem_new(1, sizeof(*handle));
    if (!handle)
        return sti_error_set(err, -ENOMEM, "no memory for the loader");
    rc = sti_loader_open(&handle->loader, engine->engine, dataset->dataset, &own, &order, err);
    if (rc < 0) {
        sti_mem_free(handle);
        return rc;
    }
    *ret_loader = handle;
    return 0;
}

void
stk_loader_close(stk_loader *loader)
{
    if (!loader)
        return;
    sti_loader_close(loader->loader);
    sti_mem_free(loader);
}

int
stk_loader_next(stk_loader *loader, stk_batch *batch)
{
    return stk_loader_next_timeout(loader, batch, UINT64_MAX);
}

int
stk_loader_next_timeout(stk_loader *loader, stk_batch *batch, uint64_t timeout_ns)
{
    return loader ? sti_loader_next(loader->loader, batch, timeout_ns) : -EINVAL;
}

int
stk_loader_release(stk_loader *loader, stk_batch *batch)
{
    return loader && batch ? sti_loader_release(loader->loader, batch) : -EINVAL;
}

void
stk_loader_interrupt(stk_loader *loader)
{
    if (loader)
        sti_loader_interrupt(loader->loader);
}

int
stk_loader_leave(stk_loader *loader)
{
    return loader ? sti_loader_leave(loader->loader) : -EINVAL;
}

int
stk_loader_seek(stk_loader *loader, uint64_t epoch, uint64_t epoch_step)
{
    return loader ? sti_loader_seek(loader->loader, epoch, epoch_step) : -EINVAL;
}

int
stk_loader_push(stk_loader *loader, const uint64_t *ids, uint64_t n, int end_epoch, int end_run)
{
    if (!loader || (n > 0 && !ids))
        return -EINVAL;
    return sti_loader_push(loader->loader, ids, n, end_epoch != 0, end_run != 0);
}

int
stk_loader_save_state(stk_loader *loader, void *state, size_t *ret_bytes)
{
    if (!loader || !state || !ret_bytes)
        return -EINVAL;
    return sti_loader_save_state(loader->loader, state, ret_bytes);
}

int
stk_loader_restore_state(stk_loader *loader, const void *state, size_t n_bytes, stk_error *err)
{
    if (!loader || !state)
        return sti_error_set(err, -EINVAL, "loader and state are required");
    return sti_loader_restore_state(loader->loader, state, n_bytes, err);
}

int
stk_loader_replacements(stk_loader *loader, stk_replacement *out, uint32_t capacity,
                        uint64_t *ret_total)
{
    if (!loader || !ret_total || (capacity > 0 && !out))
        return -EINVAL;
    return sti_loader_replacements(loader->loader, out, capacity, ret_total);
}

int
stk_loader_last_error(stk_loader *loader, stk_error *err)
{
    return loader && err ? sti_loader_last_error(loader->loader, err) : -EINVAL;
}

int
stk_loader_last_warning(stk_loader *loader, stk_error *err)
{
    return loader && err ? sti_loader_last_warning(loader->loader, err) : -EINVAL;
}

int
stk_loader_get_stats(stk_loader *loader, uint64_t epoch, stk_loader_stats *stats)
{
    if (!loader || !stats || stats->size != sizeof(*stats))
        return -EINVAL;
    return sti_loader_stats(loader->loader, epoch, stats);
}
