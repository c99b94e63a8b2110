package app_test

import (
	"context"
	"errors"
	"path/filepath"
	"testing"
	"time"

	"skein.blue/internal/app"
	"skein.blue/internal/backup"
)

// stuck is a target that answers once answer is closed, and then with an error.
type stuck struct {
	backup.Target

	asked, answer chan struct{}
}

func (s stuck) Claim(context.Context, string, []byte) error {
	s.asked <- struct{}{}
	<-s.answer
	return errors.New("no")
}

// A gauge says since when a backup is under way, and nothing between two of them.
func TestBackupUnderWay(t *testing.T) {
	to, err := backup.OpenTarget(filepath.Join(t.TempDir(), "backups"))
	if err != nil {
		t.Fatal(err)
	}
	s := stuck{to, make(chan struct{}, 100), make(chan struct{})}
	x, _ := open(t, t.TempDir(), nil)
	began := time.Now().Truncate(time.Second)
	_, _, stop := serveWith(t, x, app.ServeOptions{Backup: &app.BackupSchedule{Job: app.BackupJob{Target: s}, Every: 20 * time.Millisecond}})
	gauge := func() float64 {
		families, err := x.Registry.Gather()
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range families {
			if f.GetName() == "skein_backup_begun_timestamp_seconds" {
				return f.GetMetric()[0].GetGauge().GetValue()
			}
		}
		t.Fatal("there is no such gauge")
		return 0
	}
	<-s.asked
	if at := time.UnixMilli(int64(gauge() * 1000)); at.Before(began) || at.After(time.Now()) {
		t.Errorf("a backup is under way since %v", at)
	}
	close(s.answer)
	for until := time.Now().Add(3 * time.Second); gauge() != 0; time.Sleep(time.Millisecond) {
		if time.Now().After(until) {
			t.Fatalf("no backup is under way, and the gauge says %v", gauge())
		}
	}
	stop()
}
