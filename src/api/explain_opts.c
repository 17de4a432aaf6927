/* SPDX-License-Identifier: Apache-2.0 */
/* The options of a run to be told. */
#include "api/explain_opts.h"

#include <errno.h>

#include "api/opts.h"
#include "base/error.h"

#define NODE_RANKS_MAX 65536u

static const struct sti_opts_type explain_opts_type = {"stk_explain_opts", sizeof(stk_explain_opts),
                                                       sizeof(stk_explain_opts)};
static const struct sti_opts_type loader_opts_type = {"stk_loader_opts", sizeof(stk_loader_opts),
                                                      sizeof(stk_loader_opts)};
static const struct sti_opts_type order_opts_type = {"stk_order_opts", sizeof(stk_order_opts),
                                                     sizeof(stk_order_opts)};

int
sti_explain_opts_take(struct sti_explain_opts *own, const stk_explain_opts *opts, stk_error *err)
{
    stk_explain_opts *told = &own->own;
    int rc = sti_opts_take(told, &explain_opts_type, opts, err);

    if (rc == 0 && (!told->loader || !(told->compute_s >= 0) || told->compute_s > 1e9 ||
                    told->queue_depth > 1024 || told->is_warm > 1 || told->has_peers > 1 ||
                    told->node_ranks > NODE_RANKS_MAX))
        rc = sti_error_set(err, -EINVAL,
                           "loader is required, compute_s 0 .. 1e9, queue_depth 0 .. 1024, "
                           "is_warm and has_peers 0 or 1, node_ranks 0 .. 65536");
    if (rc == 0)
        rc = sti_opts_take(&own->loader, &loader_opts_type, told->loader, err);
    if (rc == 0)
        rc = sti_opts_take(&own->order, &order_opts_type, own->loader.order, err);
    if (rc < 0)
        return rc;
    told->loader = &own->loader;
    own->loader.order = &own->order;
    return 0;
}
