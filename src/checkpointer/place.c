/* SPDX-License-Identifier: Apache-2.0 */
#include "checkpointer/place.h"

#include <sched.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>

/* A processor's package; STI_PLACE_SOCKETS_MAX: it is not told. */
static uint32_t
package_of(int cpu)
{
    char path[96];
    char line[16] = "";

    (void)snprintf(path, sizeof(path), "/sys/devices/system/cpu/cpu%d/topology/physical_package_id",
                   cpu); /* fits */
    FILE *file = fopen(path, "re");
    if (!file)
        return STI_PLACE_SOCKETS_MAX;
    bool is_told = fgets(line, sizeof(line), file) && line[0] >= '0' && line[0] <= '9';
    (void)fclose(file); /* only read */
    unsigned long package = is_told ? strtoul(line, NULL, 10) : STI_PLACE_SOCKETS_MAX;
    return package < STI_PLACE_SOCKETS_MAX ? (uint32_t)package : STI_PLACE_SOCKETS_MAX;
}

uint32_t
sti_place_socket(void)
{
    uint32_t socket = STI_PLACE_SOCKETS_MAX;
    cpu_set_t set;

    if (sched_getaffinity(0, sizeof(set), &set) < 0)
        return 0;
    for (int cpu = 0; cpu < CPU_SETSIZE; cpu++) {
        if (!CPU_ISSET(cpu, &set))
            continue;
        uint32_t package = package_of(cpu);

        if (package == STI_PLACE_SOCKETS_MAX ||
            (socket != STI_PLACE_SOCKETS_MAX && package != socket))
            return 0;
        socket = package;
    }
    return socket == STI_PLACE_SOCKETS_MAX ? 0 : socket;
}
