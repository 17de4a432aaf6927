/* SPDX-License-Identifier: Apache-2.0 */
/* Views of data sets, exported: argument checks and handles. */
#include <stoker/engine.h>

#include <errno.h>
#include <inttypes.h>

#include "api/handles.h"
#include "base/error.h"
#include "base/mem.h"
#include "format/view.h"

/* Puts a view into a handle of its own; rc: what making it came to. */
static int
wrap(stk_dataset **ret_dataset, struct sti_dataset *made, int rc, stk_error *err)
{
    if (rc < 0)
        return rc;
    stk_dataset *handle = sti_mem_new(1, sizeof(*handle));
    if (!handle) {
        sti_dataset_close(made);
        return sti_error_set(err, -ENOMEM, "no memory for the view");
    }
    handle->dataset = made;
    *ret_dataset = handle;
    return 0;
}

int
stk_dataset_subset(stk_dataset **ret_dataset, stk_dataset *dataset, const uint64_t *ids, uint64_t n,
                   stk_error *err)
{
    struct sti_dataset *made = NULL;

    if (!ret_dataset || !dataset || !ids)
        return sti_error_set(err, -EINVAL, "ret_dataset, dataset and ids are required");
    int rc = sti_view_subset(&made, dataset->dataset, ids, 0, n, err);
    return wrap(ret_dataset, made, rc, err);
}

int
stk_dataset_range(stk_dataset **ret_dataset, stk_dataset *dataset, uint64_t first, uint64_t count,
                  stk_error *err)
{
    struct sti_dataset *made = NULL;

    if (!ret_dataset || !dataset)
        return sti_error_set(err, -EINVAL, "ret_dataset and dataset are required");
    int rc = sti_view_subset(&made, dataset->dataset, NULL, first, count, err);
    return wrap(ret_dataset, made, rc, err);
}

/* The children's own objects. Returns owned; NULL after an error that err tells. */
static struct sti_dataset **
unwrap(stk_dataset *const *datasets, uint32_t n, int *ret_code, stk_error *err)
{
    *ret_code = -EINVAL;
    if (!datasets || n == 0 || n > STI_VIEW_CHILDREN_MAX) {
        (void)sti_error_set(err, -EINVAL, "a view needs 1 to %u data sets", STI_VIEW_CHILDREN_MAX);
        return NULL;
    }
    for (uint32_t at = 0; at < n; at++) {
        if (!datasets[at]) {
            (void)sti_error_set(err, -EINVAL, "data set %" PRIu32 " of the view is NULL", at);
            return NULL;
        }
    }
    struct sti_dataset **children = sti_mem_new(n, sizeof(void *));
    if (!children) {
        *ret_code = sti_error_set(err, -ENOMEM, "no memory for the view");
        return NULL;
    }
    for (uint32_t at = 0; at < n; at++)
        children[at] = datasets[at]->dataset;
    return children;
}

int
stk_dataset_concat(stk_dataset **ret_dataset, stk_dataset *const *datasets, uint32_t n,
                   stk_error *err)
{
    struct sti_dataset *made = NULL;
    int rc;

    if (!ret_dataset)
        return sti_error_set(err, -EINVAL, "ret_dataset is required");
    struct sti_dataset **children = unwrap(datasets, n, &rc, err);
    if (!children)
        return rc;
    rc = sti_view_concat(&made, children, n, err);
    sti_mem_free(children);
    return wrap(ret_dataset, made, rc, err);
}

int
stk_dataset_mix(stk_dataset **ret_dataset, stk_dataset *const *datasets, const double *weights,
                uint32_t n, uint64_t samples, stk_error *err)
{
    struct sti_dataset *made = NULL;
    int rc;

    if (!ret_dataset || !weights)
        return sti_error_set(err, -EINVAL, "ret_dataset and weights are required");
    struct sti_dataset **children = unwrap(datasets, n, &rc, err);
    if (!children)
        return rc;
    rc = sti_view_mix(&made, children, weights, n, samples, err);
    sti_mem_free(children);
    return wrap(ret_dataset, made, rc, err);
}
