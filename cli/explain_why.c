/* SPDX-License-Identifier: Apache-2.0 */
/* Why a sample is where it is, under the policies that a run has or could have. */
#include "explain_why.h"

#include <stdio.h>

#include <stoker/cost.h>

#include "args.h"
#include "cmd.h"

/* The simulator's name of a loader's policy. */
static stk_sim_policy
policy_of(uint32_t policy)
{
    if (policy == STK_POLICY_NONE)
        return STK_SIM_STAGING;
    return policy == STK_POLICY_LRU ? STK_SIM_LRU : STK_SIM_NEXT_USE;
}

int
explain_why(const char *command, const struct bench_load_request *request,
            const stk_dataset *dataset)
{
    static char text[8192];
    stk_loader_opts loader = request->loader;
    const stk_explain_opts opts = {STK_EXPLAIN_OPTS_INIT, .loader = &loader,
                                   .tiers = request->engine.tiers,
                                   .node_ranks = request->node_ranks};
    const stk_sim_policy policies[] = {policy_of(loader.policy), STK_SIM_PAPER,
                                       STK_SIM_COORDINATED};
    size_t n = loader.policy == STK_POLICY_DEFAULT && request->order.world > 1 ? 3 : 1;

    if (loader.policy == STK_POLICY_PIN)
        return cli_usage_error(command, "--why knows the policies none, lru and next-use");
    loader.order = &request->order;
    for (size_t at = 0; at < n; at++) {
        stk_error err;
        int rc =
            stk_explain_why(dataset, &opts, policies[at], request->why, text, sizeof(text), &err);

        if (rc == STK_E_INFEASIBLE && at > 0)
            (void)printf("policy %s: %s\n", stk_sim_policy_name(policies[at]), err.message);
        else if (rc < 0)
            return cli_error(command, "--why %llu: %s", (unsigned long long)request->why,
                             err.message);
        else
            (void)fputs(text, stdout);
    }
    return cli_finish(command);
}
