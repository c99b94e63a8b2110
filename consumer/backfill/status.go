package backfill

import (
	"context"
	"time"

	"skein.blue/graph"
)

// A Status is the progress of the backfill.
type Status struct {
	// Waiting is the number of queued repos, and Later how many of those are retried in a
	// minute or later; Failed counts repos given up, by reason; Inactive those whose host
	// reports that the account is inactive.
	Waiting  int64            `json:"waiting"`
	Later    int64            `json:"later"`
	Failed   map[string]int64 `json:"failed"`
	Inactive int64            `json:"inactive"`
	// Fetched counts the repos put in place by this process, with Records and Bytes.
	Fetched int64 `json:"fetched"`
	Records int64 `json:"records"`
	Bytes   int64 `json:"bytes"`
	// Hosts is the number of hosts whose repos are being listed, HostsDone the number of those
	// that are done, and Listed the number of listed repos.
	Hosts     int   `json:"hosts"`
	HostsDone int   `json:"hostsDone"`
	Listed    int64 `json:"listed"`
	// Archive is the one being read, with its progress.
	Archive    string  `json:"archive,omitempty"`
	ArchiveSeq int64   `json:"archiveSeq,omitempty"`
	ArchiveTip int64   `json:"archiveTip,omitempty"`
	ArchiveLag float64 `json:"archiveLagSeconds,omitempty"`
	// Accounts, Complete, Partial and Desynchronized are counts of the index.
	Accounts       int64 `json:"accounts"`
	Complete       int64 `json:"complete"`
	Partial        int64 `json:"partial"`
	Desynchronized int64 `json:"desynchronized"`
	// Hole means that the stream had a hole, and the index has not been compared with the
	// relay's list since.
	Hole bool `json:"hole,omitempty"`
	// Compared is when all repos had last been compared with the relay's list.
	Compared time.Time `json:"compared,omitzero"`
	// Busy means that a list, an archive or a comparison after a hole is running, or that repos
	// are due within a minute.
	Busy bool `json:"busy"`
	// Trouble names a host or relay whose requests are being retried, and the reason.
	Trouble string `json:"trouble,omitempty"`
	// Ended has the jobs that ended in this process: "ok", or the error.
	Ended map[string]string `json:"ended,omitempty"`
}

// StatusNow returns the progress, without counts if the index cannot be read. A job has queued its repos before it ends, and a repo is counted before it
// leaves the queue, so they are asked in this order. The counts of the index are read last: once nothing is
// queued, they have all that was put in place.
func (m *Manager) StatusNow() (st Status) {
	m.jobs.report(&st)
	m.queue.report(&st)
	m.fetcher.report(&st)
	m.archiver.report(&st)
	m.lister.report(&st)
	m.client.report(&st)
	noted, compared := m.o.Store.Holes()
	st.Hole = noted > compared
	back := m.o.Store.Backfill()
	st.Compared = back.Round.Ended
	st.Busy = st.Busy || st.Waiting > st.Later || back.Roster.Unconfirmed // a comparison follows
	_ = m.o.Store.View(context.Background(), func(s *graph.View) error {
		counts, err := s.Counts()
		st.Accounts, st.Complete, st.Partial, st.Desynchronized = counts.Accounts, counts.Complete, counts.Partial, counts.Desynchronized
		return err
	})
	return st
}

// Queue returns the number of repos that wait for a fetch, and of those given up, by reason.
func (m *Manager) Queue() (waiting int64, failed map[string]int64) {
	var st Status
	m.queue.report(&st)
	return st.Waiting, st.Failed
}
