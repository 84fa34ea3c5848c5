package main

import (
	"fmt"
	"os"
	"runtime"
	"sync"
	"time"
)

// A log file that never passes its limit: when full it becomes NAME.1, in the place of the one before.
type boundedLog struct {
	path  string
	limit int64

	lock sync.Mutex
	file *os.File
	size int64
}

func (l *boundedLog) Write(text []byte) (int, error) {
	l.lock.Lock()
	defer l.lock.Unlock()
	if l.file == nil || l.size+int64(len(text)) > l.limit {
		if err := l.open(); err != nil {
			// The child must not die of a full pipe because its log cannot be written.
			return len(text), nil
		}
	}
	n, _ := l.file.Write(text)
	l.size += int64(n)
	return len(text), nil
}

func (l *boundedLog) open() error {
	if l.file != nil {
		l.file.Close()
		l.file = nil
		if err := os.Rename(l.path, l.path+".1"); err != nil {
			return err
		}
	}
	file, err := os.OpenFile(l.path, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	l.file, l.size = file, 0
	if about, err := file.Stat(); err == nil {
		l.size = about.Size()
	}
	return nil
}

func (l *boundedLog) note(format string, values ...any) {
	fmt.Fprintf(l, "%s supervise: %s\n", time.Now().Format(time.RFC3339), fmt.Sprintf(format, values...))
}

func lockThread() { runtime.LockOSThread() }
