package telemetry

import (
	"os"
	"runtime"
	"runtime/debug"
	"runtime/metrics"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// process collects the usual go_* and process_* of this process.
type process struct{}

func (process) collect(p *page) {
	put := func(kind, name, help string, value float64) {
		p.put(&metric{name: name, kind: kind, help: help}, value)
	}
	gauge := func(name, help string, value float64) { put(gaugeKind, name, help, value) }
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	for name, bytes := range map[string]uint64{
		"alloc": m.Alloc, "buck_hash_sys": m.BuckHashSys, "gc_sys": m.GCSys, "heap_alloc": m.HeapAlloc, "heap_idle": m.HeapIdle, "heap_inuse": m.HeapInuse,
		"heap_released": m.HeapReleased, "heap_sys": m.HeapSys, "mcache_inuse": m.MCacheInuse, "mcache_sys": m.MCacheSys, "mspan_inuse": m.MSpanInuse,
		"mspan_sys": m.MSpanSys, "next_gc": m.NextGC, "other_sys": m.OtherSys, "stack_inuse": m.StackInuse, "stack_sys": m.StackSys, "sys": m.Sys,
	} {
		gauge("go_memstats_"+name+"_bytes", "Bytes, as runtime.MemStats has them.", float64(bytes))
	}
	gauge("go_memstats_heap_objects", "Objects on the heap.", float64(m.HeapObjects))
	gauge("go_memstats_last_gc_time_seconds", "When the last garbage collection ended, in seconds since 1970.", float64(m.LastGC)/1e9)
	put(counterKind, "go_memstats_alloc_bytes_total", "Bytes that were allocated, even if freed.", float64(m.TotalAlloc))
	put(counterKind, "go_memstats_mallocs_total", "Objects that were allocated.", float64(m.Mallocs))
	put(counterKind, "go_memstats_frees_total", "Objects that were freed.", float64(m.Frees))
	threads, _ := runtime.ThreadCreateProfile(nil)
	gauge("go_threads", "Threads that were created.", float64(threads))
	gauge("go_goroutines", "Goroutines.", float64(runtime.NumGoroutine()))
	gauge("go_sched_gomaxprocs_threads", "Threads that run Go code at once.", float64(runtime.GOMAXPROCS(0)))
	settings := []metrics.Sample{{Name: "/gc/gogc:percent"}, {Name: "/gc/gomemlimit:bytes"}}
	metrics.Read(settings)
	gauge("go_gc_gogc_percent", "GOGC, how much the heap may grow until the next garbage collection.", float64(settings[0].Value.Uint64()))
	gauge("go_gc_gomemlimit_bytes", "GOMEMLIMIT, the memory limit of the Go runtime.", float64(settings[1].Value.Uint64()))
	p.put(&metric{"go_info", gaugeKind, "1; the version of Go is the label.", []string{"version"}}, 1, runtime.Version())
	pauses(p)
	self(gauge)
	put(counterKind, "process_cpu_seconds_total", "CPU time that this process used, in seconds.", cpuSeconds())
	received, sent := network()
	put(counterKind, "process_network_receive_bytes_total", "Bytes that the network of this process received.", received)
	put(counterKind, "process_network_transmit_bytes_total", "Bytes that the network of this process sent.", sent)
}

// pauses adds the summary of the garbage collector's pauses.
func pauses(p *page) {
	stats := debug.GCStats{PauseQuantiles: make([]time.Duration, 5)}
	debug.ReadGCStats(&stats)
	m := &metric{"go_gc_duration_seconds", "summary", "Pauses of the garbage collector.", nil}
	for i, pause := range stats.PauseQuantiles {
		p.line(m, m.name, labelText([]string{"quantile"}, []string{numeral(float64(i) / 4)}), pause.Seconds())
	}
	p.line(m, m.name+"_sum", "", stats.PauseTotal.Seconds())
	p.line(m, m.name+"_count", "", float64(stats.NumGC))
}

func cpuSeconds() float64 {
	var u unix.Rusage
	if unix.Getrusage(unix.RUSAGE_SELF, &u) != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano()).Seconds()
}

// self adds what the kernel says of this process, as far as there is a /proc.
func self(gauge func(name, help string, value float64)) {
	var limit unix.Rlimit
	if unix.Getrlimit(unix.RLIMIT_NOFILE, &limit) == nil {
		gauge("process_max_fds", "How many files may be open.", float64(limit.Cur))
	}
	if unix.Getrlimit(unix.RLIMIT_AS, &limit) == nil {
		gauge("process_virtual_memory_max_bytes", "How much virtual memory there may be.", float64(limit.Cur))
	}
	if open, err := os.ReadDir("/proc/self/fd"); err == nil {
		gauge("process_open_fds", "Files that are open.", float64(len(open)))
	}
	stat, err := os.ReadFile("/proc/self/stat")
	if err != nil {
		return
	}
	_, text, _ := strings.Cut(string(stat), ") ") // proc_pid_stat(5): field 3 and those behind it
	fields := strings.Fields(text)
	field := func(n int) float64 {
		v, _ := strconv.ParseFloat(fields[n-3], 64)
		return v
	}
	gauge("process_virtual_memory_bytes", "Virtual memory.", field(23))
	gauge("process_resident_memory_bytes", "Resident memory.", field(24)*float64(os.Getpagesize()))
	const ticks = 100 // USER_HZ, the same on each architecture that Go knows
	boot, _ := os.ReadFile("/proc/stat")
	_, text, _ = strings.Cut(string(boot), "\nbtime ")
	text, _, _ = strings.Cut(text, "\n")
	since, _ := strconv.ParseFloat(text, 64)
	gauge("process_start_time_seconds", "When this process began, in seconds since 1970.", since+field(22)/ticks)
}

// network returns how many bytes the network namespace received and sent.
func network() (received, sent float64) {
	text, _ := os.ReadFile("/proc/self/net/netstat")
	lines := strings.Split(string(text), "\n")
	for i := 0; i+1 < len(lines); i += 2 {
		names, values := strings.Fields(lines[i]), strings.Fields(lines[i+1])
		for at := range min(len(names), len(values)) {
			n, _ := strconv.ParseFloat(values[at], 64)
			switch names[0] + names[at] {
			case "IpExt:InOctets":
				received = n
			case "IpExt:OutOctets":
				sent = n
			}
		}
	}
	return received, sent
}
