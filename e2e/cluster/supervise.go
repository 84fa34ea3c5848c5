package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"
)

// A supervised node: `setup` runs once, in order, in the node's own namespaces; then the children start in order, each when the one
// before it answers, and stop in the reverse order. Written by `cargo xtask cluster up`.
type config struct {
	// The file that names the process holding the node's namespaces, as the host sees it. Written once that process lives.
	PidFile string `json:"pidFile"`
	LogDir  string `json:"logDir"`
	// The inner half waits for this file before it goes on: by then its network link has been pushed in from the host.
	GateFile string `json:"gateFile"`
	// Files named cgroup.procs that this process joins before it starts anything, so that the caller's cgroup may go.
	CgroupProcs []string `json:"cgroupProcs"`
	// Files appear here when the children are up (and vanish when they stop).
	ReadyFile string     `json:"readyFile"`
	Mounts    []mount    `json:"mounts"`
	Setup     [][]string `json:"setup"`
	Children  []child    `json:"children"`
	MaxLog    int64      `json:"maxLogBytes"`
}

// A bind of `source` on `target`, or a tmpfs when there is no source: what the parts write to fixed places stays in the node's folder.
type mount struct {
	Source string `json:"source,omitempty"`
	Target string `json:"target"`
}

type child struct {
	Name string `json:"name"`
	// The child starts when this file exists. Empty: at once.
	After   string   `json:"after"`
	Command []string `json:"command"`
	Env     []string `json:"env"`
	// "tcp:ADDRESS" or "unix:PATH": the next child starts when this one accepts there.
	Ready string `json:"ready"`
}

const (
	innerFlag = "--in-namespaces"
	// The API server would wait a minute for watches of Pods that end only after it; etcd keeps what it acknowledged in any case.
	graceToStop  = 4 * time.Second
	longestDelay = 10 * time.Second
)

func supervise(args []string) int {
	inner := len(args) == 2 && args[0] == innerFlag
	if len(args) != 1 && !inner {
		fmt.Fprintln(os.Stderr, "usage: supervise CONFIG")
		return 2
	}
	path := args[len(args)-1]
	raw, err := os.ReadFile(path)
	if err != nil {
		fmt.Fprintln(os.Stderr, "supervise:", err)
		return 1
	}
	var c config
	if err := json.Unmarshal(raw, &c); err != nil {
		fmt.Fprintf(os.Stderr, "supervise: %s: %v\n", path, err)
		return 1
	}
	if inner {
		err = c.runInside()
	} else {
		err = c.runOutside(path)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "supervise:", err)
		return 1
	}
	return 0
}

// The outer half starts the inner half as process 1 of new pid, mount and network namespaces, and waits. When the inner half ends, the
// kernel ends every process, mount, link and rule of the node with it: that is what makes a removal complete.
func (c *config) runOutside(path string) error {
	for _, procs := range c.CgroupProcs {
		if err := os.WriteFile(procs, []byte("0"), 0); err != nil {
			return err
		}
	}
	self, err := os.Executable()
	if err != nil {
		return err
	}
	signals := make(chan os.Signal, 4)
	signal.Notify(signals, syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP)
	command := exec.Command(self, "supervise", innerFlag, path)
	command.Stdout, command.Stderr = os.Stdout, os.Stderr
	command.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags: syscall.CLONE_NEWPID | syscall.CLONE_NEWNS | syscall.CLONE_NEWNET,
		Pdeathsig:  syscall.SIGKILL,
		Setsid:     true,
	}
	// Pdeathsig is about the thread that forked, not the process.
	lockThread()
	if err := command.Start(); err != nil {
		return err
	}
	if err := writeWhole(c.PidFile, fmt.Sprintf("%d %d\n", command.Process.Pid, os.Getpid())); err != nil {
		command.Process.Kill() //nolint:errcheck
		return err
	}
	go func() {
		for s := range signals {
			if s != syscall.SIGHUP {
				command.Process.Signal(syscall.SIGTERM) //nolint:errcheck
			}
		}
	}()
	err = command.Wait()
	os.Remove(c.PidFile) //nolint:errcheck
	return err
}

func (c *config) runInside() error {
	signals := make(chan os.Signal, 4)
	signal.Notify(signals, syscall.SIGTERM, syscall.SIGINT)
	if err := c.prepareMounts(); err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(context.Background())
	go func() { <-signals; cancel() }()
	if !waitFile(ctx, c.GateFile) {
		return nil
	}
	for _, command := range c.Setup {
		if output, err := exec.Command(command[0], command[1:]...).CombinedOutput(); err != nil {
			return fmt.Errorf("%s: %w: %s", strings.Join(command, " "), err, strings.TrimSpace(string(output)))
		}
	}
	reaper := newReaper()

	var running []*supervised
	for _, spec := range c.Children {
		s := &supervised{child: spec, reaper: reaper, log: &boundedLog{path: filepath.Join(c.LogDir, spec.Name+".log"), limit: c.MaxLog}}
		if !waitFile(ctx, spec.After) {
			break
		}
		running = append(running, s)
		s.start(ctx)
		if !waitReady(ctx, spec.Ready) {
			break
		}
	}
	if ctx.Err() == nil {
		if err := writeWhole(c.ReadyFile, "ready\n"); err != nil {
			fmt.Fprintln(os.Stderr, "supervise:", err)
		}
		<-ctx.Done()
	}
	os.Remove(c.ReadyFile) //nolint:errcheck
	for i := len(running) - 1; i >= 0; i-- {
		running[i].stop()
	}
	return nil
}

func (c *config) prepareMounts() error {
	// First private: nothing that is mounted here shows on the host, or the other way round. Then shared again, as a peer group of the node's
	// own: Bidirectional propagation needs a shared root.
	for _, flags := range []uintptr{syscall.MS_REC | syscall.MS_PRIVATE, syscall.MS_REC | syscall.MS_SHARED} {
		if err := syscall.Mount("", "/", "", flags, ""); err != nil {
			return fmt.Errorf("mount propagation of /: %w", err)
		}
	}
	if err := syscall.Mount("proc", "/proc", "proc", syscall.MS_NOSUID|syscall.MS_NODEV|syscall.MS_NOEXEC, ""); err != nil {
		return fmt.Errorf("mount /proc: %w", err)
	}
	for _, m := range c.Mounts {
		var err error
		if m.Source == "" {
			err = syscall.Mount("tmpfs", m.Target, "tmpfs", syscall.MS_NOSUID|syscall.MS_NODEV, "mode=755")
		} else if err = syscall.Mount(m.Source, m.Target, "", syscall.MS_BIND, ""); err == nil {
			// A group of its own, else every mount below the target shows a second time below the source.
			if err = syscall.Mount("", m.Target, "", syscall.MS_PRIVATE, ""); err == nil {
				err = syscall.Mount("", m.Target, "", syscall.MS_SHARED, "")
			}
		}
		if err != nil {
			return fmt.Errorf("mount %s on %s: %w", m.Source, m.Target, err)
		}
	}
	return nil
}

type supervised struct {
	child
	reaper *reaper
	log    *boundedLog
	cancel context.CancelFunc
	done   chan struct{}
}

// Starts the child and again whenever it ends, waiting longer each time, until stop.
func (s *supervised) start(parent context.Context) {
	ctx, cancel := context.WithCancel(context.WithoutCancel(parent))
	s.cancel, s.done = cancel, make(chan struct{})
	go func() {
		defer close(s.done)
		delay := time.Second
		for {
			began := time.Now()
			pid, ended, err := s.spawn()
			if err != nil {
				s.log.note("cannot start: %v", err)
			} else {
				select {
				case status := <-ended:
					s.log.note("ended after %s: %s", time.Since(began).Round(time.Second), describe(status))
				case <-ctx.Done():
					syscall.Kill(pid, syscall.SIGTERM) //nolint:errcheck
					select {
					case <-ended:
					case <-time.After(graceToStop):
						s.log.note("did not stop within %s: killed", graceToStop)
						syscall.Kill(pid, syscall.SIGKILL) //nolint:errcheck
						<-ended
					}
					return
				}
			}
			if time.Since(began) > time.Minute {
				delay = time.Second
			}
			select {
			case <-time.After(delay):
			case <-ctx.Done():
				return
			}
			delay = min(delay*2, longestDelay)
		}
	}()
}

func (s *supervised) stop() {
	s.cancel()
	<-s.done
}

func (s *supervised) spawn() (int, <-chan syscall.WaitStatus, error) {
	read, write, err := os.Pipe()
	if err != nil {
		return 0, nil, err
	}
	defer write.Close()
	null, err := os.Open(os.DevNull)
	if err != nil {
		read.Close()
		return 0, nil, err
	}
	defer null.Close()
	pid, ended, err := s.reaper.start(s.Command, &syscall.ProcAttr{
		Dir:   "/",
		Env:   append(os.Environ(), s.Env...),
		Files: []uintptr{null.Fd(), write.Fd(), write.Fd()},
		Sys:   &syscall.SysProcAttr{Setsid: true},
	})
	if err != nil {
		read.Close()
		return 0, nil, err
	}
	go func() {
		defer read.Close()
		io.Copy(s.log, read) //nolint:errcheck
	}()
	return pid, ended, nil
}

// Waits until the file exists; false when the context ended before. An empty path is no wait.
func waitFile(ctx context.Context, path string) bool {
	for path != "" && ctx.Err() == nil {
		if _, err := os.Stat(path); err == nil {
			return true
		}
		select {
		case <-time.After(20 * time.Millisecond):
		case <-ctx.Done():
		}
	}
	return ctx.Err() == nil
}

func waitReady(ctx context.Context, where string) bool {
	network, address, found := strings.Cut(where, ":")
	for found && ctx.Err() == nil {
		connection, err := net.DialTimeout(network, address, time.Second)
		if err == nil {
			connection.Close()
			return true
		}
		select {
		case <-time.After(50 * time.Millisecond):
		case <-ctx.Done():
		}
	}
	return ctx.Err() == nil
}

// Process 1 inherits every orphan of the node, container processes among them. One loop waits for all, and tells who asked.
type reaper struct {
	lock    sync.Mutex
	waiting map[int]chan syscall.WaitStatus
}

func newReaper() *reaper {
	r := &reaper{waiting: map[int]chan syscall.WaitStatus{}}
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, syscall.SIGCHLD)
	go func() {
		for range signals {
			r.reap()
		}
	}()
	return r
}

func (r *reaper) reap() {
	r.lock.Lock()
	defer r.lock.Unlock()
	for {
		var status syscall.WaitStatus
		pid, err := syscall.Wait4(-1, &status, syscall.WNOHANG, nil)
		if err == syscall.EINTR {
			continue
		}
		if err != nil || pid <= 0 {
			return
		}
		if ended, asked := r.waiting[pid]; asked {
			ended <- status
			delete(r.waiting, pid)
		}
	}
}

// The lock is held over the fork, so that no end is reaped before somebody waits for it.
func (r *reaper) start(command []string, attributes *syscall.ProcAttr) (int, <-chan syscall.WaitStatus, error) {
	r.lock.Lock()
	defer r.lock.Unlock()
	pid, err := syscall.ForkExec(command[0], command, attributes)
	if err != nil {
		return 0, nil, err
	}
	ended := make(chan syscall.WaitStatus, 1)
	r.waiting[pid] = ended
	return pid, ended, nil
}

func describe(status syscall.WaitStatus) string {
	if status.Signaled() {
		return "killed by " + status.Signal().String()
	}
	return fmt.Sprintf("exit status %d", status.ExitStatus())
}

func writeWhole(path, text string) error {
	if err := os.WriteFile(path+".new", []byte(text), 0o644); err != nil {
		return err
	}
	return os.Rename(path+".new", path)
}
