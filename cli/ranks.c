/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Launchers' variables. The library reads none; programs that use it find out in ways of
 * their own who they are. MASTER_PORT belongs to the launcher, so the port is another one:
 * STOKER_PORT, else one that follows from the job's number or is always the same.
 */
#include "ranks.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "args.h"

#define PORT_DEFAULT 29476u
#define PORT_FIRST 20000u /* of those that follow from a job's number */
#define PORTS 10000u

struct launcher {
    const char *rank;
    const char *world;
};

static const struct launcher launchers[] = {
    {"RANK", "WORLD_SIZE"},
    {"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"},
    {"SLURM_PROCID", "SLURM_STEP_NUM_TASKS"},
};

/* A variable; NULL where it is not set or empty. */
static const char *
variable(const char *name)
{
    const char *value = getenv(name); /* NOLINT(concurrency-mt-unsafe): no thread is there yet */

    return value && value[0] != '\0' ? value : NULL;
}

static int
number_of(const char *command, const char *name, uint64_t most, uint64_t *ret_value)
{
    const char *text = variable(name);
    char *end;

    if (!text)
        return CLI_OK;
    const unsigned long long value = strtoull(text, &end, 10);
    if (*end != '\0' || text[0] == '-' || value > most)
        return cli_usage_error(command, "the environment's %s is '%s', not a number up to %" PRIu64,
                               name, text, most);
    *ret_value = value;
    return CLI_OK;
}

/* The first of Slurm's list of nodes: "node[03-07,9],other" begins with node03. */
static bool
first_node(const char *list, char *host)
{
    const size_t n_name = strcspn(list, "[,");
    size_t n_digits = 0;

    if (list[n_name] == '[')
        n_digits = strcspn(list + n_name + 1, "-,]");
    if (n_name + n_digits >= RANKS_HOST_SIZE)
        return false;
    memcpy(host, list, n_name);
    if (n_digits > 0)
        memcpy(host + n_name, list + n_name + 1, n_digits);
    host[n_name + n_digits] = '\0';
    return true;
}

/* Where rank 0 is. */
static const char *
find_host(struct cli_ranks *ranks)
{
    const char *host = variable("STOKER_ADDR");
    const char *nodes = variable("SLURM_STEP_NODELIST");
    const char *local = variable("OMPI_COMM_WORLD_LOCAL_SIZE");
    const char *world = variable("OMPI_COMM_WORLD_SIZE");

    if (!host)
        host = variable("MASTER_ADDR");
    if (!host && nodes && first_node(nodes, ranks->host))
        host = ranks->host;
    if (!host && local && world && strcmp(local, world) == 0)
        host = "127.0.0.1"; /* all on this machine */
    return host;
}

/* Splits STOKER_HOSTS where it stands. */
static void
find_hosts(stk_comm_opts *comm)
{
    static char text[4096];
    static const char *hosts[256];
    const char *given = variable("STOKER_HOSTS");
    char *rest = NULL;

    if (!given || strlen(given) >= sizeof(text))
        return;
    memcpy(text, given, strlen(given) + 1);
    for (const char *host = strtok_r(text, ",", &rest); host && comm->n_hosts < 256;
         host = strtok_r(NULL, ",", &rest))
        hosts[comm->n_hosts++] = host;
    comm->hosts = hosts;
}

static int
find_port(const char *command, uint32_t *ret_port)
{
    uint64_t job = 0;
    uint64_t port = PORT_DEFAULT;
    int rc = number_of(command, "SLURM_JOB_ID", UINT64_MAX, &job);

    if (rc == CLI_OK && job > 0)
        port = PORT_FIRST + job % PORTS;
    if (rc == CLI_OK)
        rc = number_of(command, "STOKER_PORT", UINT16_MAX, &port);
    *ret_port = (uint32_t)port;
    return rc;
}

int
cli_ranks_find(const char *command, struct cli_ranks *ret_ranks)
{
    const struct launcher *launcher = NULL;
    uint64_t rank = 0, world = 0;

    *ret_ranks = (struct cli_ranks){.comm = {STK_COMM_OPTS_INIT}};
    for (size_t at = 0; at < sizeof(launchers) / sizeof(launchers[0]) && !launcher; at++)
        if (variable(launchers[at].rank) && variable(launchers[at].world))
            launcher = &launchers[at];
    if (!launcher)
        return CLI_OK;
    int rc = number_of(command, launcher->rank, UINT32_MAX, &rank);
    if (rc == CLI_OK)
        rc = number_of(command, launcher->world, UINT32_MAX, &world);
    if (rc != CLI_OK || world <= 1)
        return rc;
    stk_comm_opts *comm = &ret_ranks->comm;
    ret_ranks->is_one_of_many = true;
    comm->rank = (uint32_t)rank;
    comm->world = (uint32_t)world;
    comm->host = find_host(ret_ranks);
    if (!comm->host)
        return cli_usage_error(command,
                               "%s says that there are %" PRIu64
                               " ranks, but not where rank 0 is: set STOKER_ADDR, or give --alone",
                               launcher->world, world);
    comm->secret = variable("STOKER_SECRET");
    comm->node = variable("STOKER_NODE");
    comm->transports = variable("STOKER_TRANSPORTS");
    find_hosts(comm);
    return find_port(command, &comm->port);
}
