#include "agent/cache/confine.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/landlock.h>
#include <linux/seccomp.h>
#include <signal.h>
#include <stddef.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "common/base/check.h"

#if defined(__x86_64__)
#    define OUR_ARCH AUDIT_ARCH_X86_64
#elif defined(__aarch64__)
#    define OUR_ARCH AUDIT_ARCH_AARCH64
#endif

/* Of kernels younger than the headers. */
#define ACCESS_TRUNCATE  (1ULL << 14) /* from version 3 on */
#define ACCESS_IOCTL_DEV (1ULL << 15) /* from version 5 on */

static long landlock_version(void)
{
    return syscall(SYS_landlock_create_ruleset, NULL, 0, LANDLOCK_CREATE_RULESET_VERSION);
}

bool confine_knows_files(void)
{
    return landlock_version() >= 2; /* without REFER no hard link could be made */
}

static void no_foreign_files(const char *folder)
{
    long version = landlock_version();
    struct landlock_ruleset_attr rules = {
        .handled_access_fs = LANDLOCK_ACCESS_FS_EXECUTE | LANDLOCK_ACCESS_FS_WRITE_FILE |
                             LANDLOCK_ACCESS_FS_READ_FILE | LANDLOCK_ACCESS_FS_READ_DIR |
                             LANDLOCK_ACCESS_FS_REMOVE_DIR | LANDLOCK_ACCESS_FS_REMOVE_FILE |
                             LANDLOCK_ACCESS_FS_MAKE_CHAR | LANDLOCK_ACCESS_FS_MAKE_DIR |
                             LANDLOCK_ACCESS_FS_MAKE_REG | LANDLOCK_ACCESS_FS_MAKE_SOCK |
                             LANDLOCK_ACCESS_FS_MAKE_FIFO | LANDLOCK_ACCESS_FS_MAKE_BLOCK |
                             LANDLOCK_ACCESS_FS_MAKE_SYM | LANDLOCK_ACCESS_FS_REFER};
    struct landlock_path_beneath_attr here = {
        .allowed_access = LANDLOCK_ACCESS_FS_READ_FILE | LANDLOCK_ACCESS_FS_READ_DIR |
                          LANDLOCK_ACCESS_FS_WRITE_FILE | LANDLOCK_ACCESS_FS_REMOVE_DIR |
                          LANDLOCK_ACCESS_FS_REMOVE_FILE | LANDLOCK_ACCESS_FS_MAKE_DIR |
                          LANDLOCK_ACCESS_FS_MAKE_REG | LANDLOCK_ACCESS_FS_MAKE_SYM |
                          LANDLOCK_ACCESS_FS_REFER};
    int set;

    if (!confine_knows_files()) {
        return;
    }
    if (version >= 3) {
        rules.handled_access_fs |= ACCESS_TRUNCATE;
        here.allowed_access |= ACCESS_TRUNCATE;
    }
    if (version >= 5) {
        rules.handled_access_fs |= ACCESS_IOCTL_DEV;
    }
    set = (int)syscall(SYS_landlock_create_ruleset, &rules, sizeof rules, 0);
    if (set == -1) {
        return;
    }
    here.parent_fd = open(folder, O_PATH | O_DIRECTORY | O_CLOEXEC);
    if (here.parent_fd != -1 &&
        syscall(SYS_landlock_add_rule, set, LANDLOCK_RULE_PATH_BENEATH, &here, 0) == 0) {
        (void)syscall(SYS_landlock_restrict_self, set, 0);
    }
    close(set);
}

enum { FCHMODAT2 = 452 }; /* on all architectures */

static void no_network_no_programs(void)
{
#ifdef OUR_ARCH
    static const unsigned refused[] =
    { SYS_socket,
      SYS_socketpair,
      SYS_connect,
      SYS_bind,
      SYS_execve,
      SYS_execveat,
      SYS_ptrace,
      SYS_kill,
      SYS_pidfd_send_signal,
      SYS_pidfd_getfd,
      SYS_process_vm_readv,
      SYS_process_vm_writev,
      SYS_mount,
      SYS_setuid,
      SYS_setgid,
      SYS_unshare,
      SYS_setns,
      SYS_bpf,
      /* Landlock does not judge what changes a file by its path but not its bytes. libarchive does
       * that by descriptors, but for the times of symbolic links (utimensat). */
      SYS_truncate,
      SYS_fchownat,
      SYS_fchmodat,
      FCHMODAT2,
      SYS_setxattr,
      SYS_lsetxattr,
      SYS_removexattr,
      SYS_lremovexattr,
      SYS_mknodat,
#    if defined(__x86_64__)
      SYS_chown,
      SYS_lchown,
      SYS_chmod,
      SYS_mknod,
      SYS_utime,
      SYS_utimes,
      SYS_futimesat,
#    endif
      /* The kernel does a ring's work by itself, and asks no filter. */
      SYS_io_uring_setup,
      SYS_io_uring_enter,
      SYS_io_uring_register };
    enum { N = ARRAY_LEN(refused) };
    struct sock_filter code[N + 7]; /* jumps reach 255 lines */
    struct sock_fprog prog = {.filter = code};
    size_t at = 0;

    code[at++] =
        (struct sock_filter)BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, arch));
    code[at++] = (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, OUR_ARCH, 1, 0);
    code[at++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS);
    code[at++] =
        (struct sock_filter)BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr));
#    if defined(__x86_64__)
    /* The x32 interface has numbers of its own for the same calls, on kernels that know it. */
    code[at++] = (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JGE | BPF_K, 0x40000000, N + 1, 0);
#    endif
    for (size_t i = 0; i < N; i++) { /* to the last line */
        code[at++] = (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, refused[i],
                                                  (uint8_t)(N - i), 0);
    }
    code[at++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW);
    code[at++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM);
    prog.len = (unsigned short)at;
    (void)prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &prog);
#endif
}

void confine_to(const char *folder)
{
    const struct rlimit none = {0, 0};

    prctl(PR_SET_PDEATHSIG, SIGKILL);
    setrlimit(RLIMIT_CORE, &none);
    prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
    no_foreign_files(folder);
    no_network_no_programs();
}
