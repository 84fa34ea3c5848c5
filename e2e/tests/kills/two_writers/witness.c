/* Tries every 10 ms, in every way that there is, to write a stamped line below a lent path. `evidence.rs` reads what became of it.
 *
 * witness TREE WHO [init]
 *
 * TREE/lent/lines   what was written: WHO WAY STAMP; all ways append to this one file, so its order is the order of the writes
 * TREE/lent/alias   another name of it, made before
 * TREE/lent/mapped  stamps before and after a store, by pairs; the first half is the lender's
 * TREE/lent/moved   files that were moved in, WHO STAMP
 * TREE/out          files that were moved out, the same
 * TREE/tries-WHO    how often it has tried, and how often its worker was ended
 *
 * A worker holds what can be held: descriptors, a folder, a mapping, a working directory, a shell. Whoever ends it ends what it holds; this program
 * itself holds nothing there, and starts another one. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define PAIRS 65536
#define SIZE (2 * PAIRS * 2 * sizeof(long long))

static char lent[256], lines[256], alias_[256], mapped[256], moved[256], out[256], tries[256], source[256];
static const char *who;
static int is_lender;

static long long now(void) {
    struct timespec at;
    clock_gettime(CLOCK_BOOTTIME, &at);
    return at.tv_sec * 1000000000LL + at.tv_nsec;
}

static void pause_ms(long ms) {
    struct timespec time = {0, ms * 1000000};
    nanosleep(&time, NULL);
}

/* One line by one write, so that none lies in another. */
static int append(int fd, const char *way) {
    char line[128];
    int length = snprintf(line, sizeof line, "%s %s %lld\n", who, way, now());
    return fd >= 0 && write(fd, line, length) == length;
}

static void append_at(int fd, const char *way) {
    append(fd, way);
    if (fd >= 0) close(fd);
}

static void count(long ended) {
    static long tried;
    char text[64];
    int fd = open(tries, O_WRONLY | O_CREAT | O_TRUNC, 0644);
    int length = snprintf(text, sizeof text, "%ld %ld\n", ++tried, ended);
    if (fd >= 0) {
        if (write(fd, text, length) < 0) perror(tries);
        close(fd);
    }
}

static void work(void) {
    int held = -1, reader = -1, folder = -1, in_it = 0, pipe_[2];
    long long *map = NULL;
    long slot = 0;
    char last[512] = "";
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    signal(SIGPIPE, SIG_IGN);
    if (pipe(pipe_)) exit(1);
    if (fork() == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        dup2(pipe_[0], 0);
        close(pipe_[0]);
        close(pipe_[1]);
        execl("/bin/sh", "sh", (char *)NULL);
        exit(1);
    }
    close(pipe_[0]);
    for (;; pause_ms(10)) {
        char path[512], text[640];
        /* A shell, which opens the file for each line. */
        int length = snprintf(text, sizeof text, "echo %s shell %lld >>%s\n", who, now(), lines);
        if (write(pipe_[1], text, length) != length) exit(1);
        /* A descriptor that is kept. */
        if (held < 0) held = open(lines, O_WRONLY | O_APPEND);
        if (!append(held, "descriptor") && held >= 0) close(held), held = -1;
        /* One for reading that is kept, and opened again by /proc. */
        if (reader < 0) reader = open(lines, O_RDONLY);
        snprintf(path, sizeof path, "/proc/self/fd/%d", reader);
        int again = open(path, O_WRONLY | O_APPEND);
        if (again < 0 && reader >= 0) close(reader), reader = -1;
        append_at(again, "proc");
        /* A folder that is kept. */
        if (folder < 0) folder = open(lent, O_PATH | O_DIRECTORY);
        int beneath = openat(folder, "lines", O_WRONLY | O_APPEND);
        if (beneath < 0 && folder >= 0) close(folder), folder = -1;
        append_at(beneath, "folder");
        /* A working directory. */
        if (!in_it) in_it = chdir(lent) == 0;
        int near = open("lines", O_WRONLY | O_APPEND);
        if (near < 0) in_it = 0;
        append_at(near, "directory");
        /* Another name. */
        append_at(open(alias_, O_WRONLY | O_APPEND), "link");
        /* A mapping that is kept. */
        if (!map) {
            int fd = open(mapped, O_RDWR);
            if (fd >= 0) {
                map = mmap(NULL, SIZE, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
                close(fd);
                if (map == MAP_FAILED) exit(1);
                if (!is_lender) map += PAIRS * 2;
            }
        }
        if (map) {
            while (slot < PAIRS && map[slot * 2]) slot++;
            if (slot < PAIRS) {
                map[slot * 2] = now();
                map[slot * 2 + 1] = now();
            }
        }
        /* A file that comes from beside, and one that goes there. */
        snprintf(path, sizeof path, "%s/%s %lld", moved, who, now());
        int fresh = open(source, O_WRONLY | O_CREAT, 0644);
        if (fresh >= 0) close(fresh);
        if (rename(source, path) == 0) {
            if (last[0]) {
                snprintf(text, sizeof text, "%s/%s %lld", out, who, now());
                rename(last, text);
            }
            strcpy(last, path);
        } else {
            /* Who may write nothing beside makes one here. */
            int made = is_lender ? -1 : open(path, O_WRONLY | O_CREAT | O_EXCL, 0644);
            if (made >= 0) close(made), unlink(path), append_at(open(lines, O_WRONLY | O_APPEND), "create");
        }
    }
}

int main(int count_of, char **words) {
    if (count_of < 3) return 2;
    who = words[2];
    snprintf(lent, sizeof lent, "%s/lent", words[1]);
    snprintf(lines, sizeof lines, "%s/lines", lent);
    snprintf(alias_, sizeof alias_, "%s/alias", lent);
    snprintf(mapped, sizeof mapped, "%s/mapped", lent);
    snprintf(moved, sizeof moved, "%s/moved", lent);
    snprintf(out, sizeof out, "%s/out", words[1]);
    snprintf(tries, sizeof tries, "%s/tries-%s", words[1], who);
    snprintf(source, sizeof source, "%s/source-%s", words[1], who);
    is_lender = strncmp(who, "child", 5) != 0;
    if (count_of > 3) {
        mkdir(lent, 0755);
        mkdir(moved, 0755);
        mkdir(out, 0755);
        close(open(lines, O_WRONLY | O_CREAT, 0644));
        if (link(lines, alias_)) perror(alias_);
        int fd = open(mapped, O_RDWR | O_CREAT, 0644);
        if (fd < 0 || ftruncate(fd, SIZE)) return 1;
        close(fd);
        return 0;
    }
    /* Not below the tree: a shell may have started this there. */
    if (chdir("/")) return 1;
    for (long ended = 0;; ended++) {
        pid_t worker = fork();
        if (worker == 0) work();
        for (;;) {
            int status;
            count(ended);
            pause_ms(10);
            if (worker < 0 || waitpid(worker, &status, WNOHANG) == worker) break;
        }
    }
}
