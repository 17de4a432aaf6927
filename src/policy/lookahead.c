/* SPDX-License-Identifier: Apache-2.0 */
/* The limit of looking ahead; the header has the reasoning. */
#include "policy/lookahead.h"

uint64_t
sti_lookahead_bytes(const struct sti_lookahead *lookahead, uint64_t passed_bytes,
                    uint64_t left_bytes)
{
    double data_bytes = (double)lookahead->data_bytes;
    double ssd_bytes = (double)lookahead->ssd_bytes;
    double missing_bytes = data_bytes - ssd_bytes - (double)lookahead->memory_bytes;

    if (lookahead->ssd_bytes == 0 || missing_bytes <= 0)
        return lookahead->limit_bytes;
    double part = ssd_bytes / data_bytes;
    double transit_bytes = 0.75 * (double)lookahead->transit_bytes;
    double bytes = (1 - part) * (double)passed_bytes + transit_bytes;
    double late_bytes = ((1 - part) * (double)left_bytes + transit_bytes) / part;
    if (bytes < transit_bytes / part)
        bytes = transit_bytes / part;
    if (bytes > late_bytes)
        bytes = late_bytes;
    if (bytes > (missing_bytes + transit_bytes) / part)
        bytes = (missing_bytes + transit_bytes) / part;
    if (bytes > (double)lookahead->limit_bytes)
        return lookahead->limit_bytes;
    return bytes < (double)lookahead->least_bytes ? lookahead->least_bytes : (uint64_t)bytes;
}
