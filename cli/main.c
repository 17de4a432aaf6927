/* SPDX-License-Identifier: Apache-2.0 */
/* The program: a table of commands, and help. */
#include <stdio.h>
#include <string.h>

#include <stoker/stoker.h>

#include "args.h"
#include "cmd.h"

struct command {
    const char *name;
    const char *summary;
    const char *help;
    int (*run)(int argc, char **argv);
    const char *more_help; /* printed behind help, or NULL */
};

static const struct command commands[] = {
    {"index", "make or check the index of a data set", cmd_index_help, cmd_index, NULL},
    {"bench", "measure how fast data is read and checkpoints are written", cmd_bench_help,
     cmd_bench, cmd_bench_save_help},
    {"ckpt", "list, check, export and remove checkpoints", cmd_ckpt_help, cmd_ckpt, NULL},
    {"order", "print which sample is read at which position", cmd_order_help, cmd_order, NULL},
    {"explain", "tell beforehand what a run will read and wait for", cmd_explain_help, cmd_explain,
     NULL},
    {"probe", "measure how fast a directory or file can be read", cmd_probe_help, cmd_probe, NULL},
    {"simulate", "what I/O costs a job on machines that need not exist", cmd_simulate_help,
     cmd_simulate, NULL},
};

static const struct command *
find_command(const char *name)
{
    for (size_t i = 0; i < sizeof(commands) / sizeof(commands[0]); i++)
        if (!strcmp(commands[i].name, name))
            return &commands[i];
    return NULL;
}

static void
print_overview(FILE *to)
{
    (void)fputs("Usage: stoker COMMAND [OPTION...]\n\nCommands\n", to);
    for (size_t i = 0; i < sizeof(commands) / sizeof(commands[0]); i++)
        (void)fprintf(to, "  %-10s %s\n", commands[i].name, commands[i].summary);
    (void)fputs("  help       explain a command: stoker help COMMAND\n\n"
                "Options\n"
                "  --help     print this\n"
                "  --version  print the version\n",
                to);
}

static int
unknown_command(const char *name)
{
    (void)fprintf(stderr, "stoker: unknown command '%s'\nTry 'stoker --help'.\n", name);
    return CLI_USAGE;
}

static int
cmd_help(const char *name)
{
    const struct command *command = name ? find_command(name) : NULL;

    if (name && !command)
        return unknown_command(name);
    if (command) {
        (void)fputs(command->help, stdout);
        if (command->more_help)
            (void)fputs(command->more_help, stdout);
    } else {
        print_overview(stdout);
    }
    return cli_finish("help");
}

/* Whether --help stands among a command's options. */
static int
asks_for_help(int argc, char **argv)
{
    for (int i = 1; i < argc && strcmp(argv[i], "--") != 0; i++)
        if (!strcmp(argv[i], "--help"))
            return 1;
    return 0;
}

int
main(int argc, char **argv)
{
    if (argc < 2) {
        print_overview(stderr);
        return CLI_USAGE;
    }
    if (!strcmp(argv[1], "--version")) {
        (void)printf("stoker %s\n", stk_version());
        return cli_finish("--version");
    }
    if (!strcmp(argv[1], "--help"))
        return cmd_help(NULL);
    if (!strcmp(argv[1], "help"))
        return cmd_help(argv[2]);
    const struct command *command = find_command(argv[1]);
    if (!command)
        return unknown_command(argv[1]);
    if (asks_for_help(argc - 1, argv + 1))
        return cmd_help(command->name);
    return command->run(argc - 1, argv + 1);
}
