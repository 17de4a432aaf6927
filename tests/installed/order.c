/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A program of somebody else's, built against the installed library as C99 and as C++17:
 * makes an order, prints a permutation and compares it with what PyTorch gives.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <stoker/stoker.h>

#define N 10

/* torch.randperm(10) after torch.manual_seed(42). */
static const uint64_t expected[N] = {2, 6, 1, 8, 4, 5, 0, 9, 3, 7};

static void
fail(const char *what, int code)
{
    fprintf(stderr, "%s: %s (%d)\n", what, stk_strerror(code), code);
    exit(1);
}

int
main(void)
{
    stk_order_opts opts;
    stk_order *order = NULL;
    stk_error err;
    uint64_t ids[N];
    uint64_t count = 0;
    int rc;

    memset(&opts, 0, sizeof(opts));
    opts.size = sizeof(opts);
    opts.kind = STK_ORDER_TORCH;
    opts.n = N;
    opts.seed = 42;
    rc = stk_order_new(&order, &opts, &err);
    if (rc < 0)
        fail(err.message, rc);
    rc = stk_order_length(order, &count);
    if (rc < 0 || count != N)
        fail("stk_order_length", rc);
    rc = stk_order_ids(order, 0, 0, N, ids);
    if (rc < 0)
        fail("stk_order_ids", rc);
    printf("stoker %s:", stk_version());
    for (int at = 0; at < N; at++)
        printf(" %d", (int)ids[at]);
    printf("\n");
    stk_order_free(order);
    if (memcmp(ids, expected, sizeof(ids)) != 0)
        fail("this is not torch's permutation", STK_E_MISMATCH);

    opts.n = 0; /* refused, with words */
    rc = stk_order_new(&order, &opts, &err);
    if (rc >= 0 || err.code != rc || err.message[0] == '\0')
        fail("an order of nothing was made", rc);
    printf("refused: %s\n", err.message);
    return 0;
}
