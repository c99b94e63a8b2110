package command

import (
	"os"
	"strings"
	"time"

	"github.com/urfave/cli/v3"

	"skein.blue/internal/app"
	"skein.blue/internal/backup"
)

// BackupSettings are the flags for backups.
type BackupSettings struct {
	to, sign, trust string
	keep            int
	every           time.Duration

	From, Follow string
}

// TrustFlag returns the flag for the key that must have signed a backup.
func (b *BackupSettings) TrustFlag() cli.Flag {
	return &cli.StringFlag{Name: "trust", Usage: "minisign public key (RW…), or a file that has it, that must have signed the backup; required for a backup from a web server", Destination: &b.trust, Sources: Env("trust")}
}

// MakeFlags returns the flags for making backups.
func (b *BackupSettings) MakeFlags() []cli.Flag {
	return []cli.Flag{
		&cli.StringFlag{Name: "backup-sign", DefaultText: "no signature", Usage: "file of the minisign secret key that signs the backup, so that others can check where it comes from; SKEIN_BACKUP_PASSWORD holds its password, if it has one. Make one with minisign -G", Destination: &b.sign, Sources: Env("backup-sign")},
		&cli.IntFlag{Name: "backup-keep", DefaultText: "all", Usage: "how many backups to keep: after each backup, skein removes all but this many, the newest", Destination: &b.keep, Sources: Env("backup-keep")},
	}
}

// ScheduleFlags returns the flags for the backups that a daemon makes automatically.
func (b *BackupSettings) ScheduleFlags() []cli.Flag {
	return append([]cli.Flag{
		&cli.StringFlag{Name: "backup-to", DefaultText: "no backups", Usage: "folder or bucket (s3://BUCKET/PREFIX) to which to back up regularly; see skein backup", Destination: &b.to, Sources: Env("backup-to")},
		&cli.DurationFlag{Name: "backup-every", Value: time.Hour, Usage: "how often to back up to --backup-to", Destination: &b.every, Sources: Env("backup-every")},
	}, b.MakeFlags()...)
}

// StartFlags returns the flags of a daemon that begins with a backup, or answers from one.
func (b *BackupSettings) StartFlags() []cli.Flag {
	return []cli.Flag{
		&cli.StringFlag{Name: "from", Usage: "if there is no store yet, begin with the newest backup in this folder, bucket (s3://BUCKET/PREFIX) or web server (https://HOST/PATH, which needs --trust), and consume the stream from there", Destination: &b.From, Sources: Env("from")},
		&cli.StringFlag{Name: "follow", Usage: "with --consume=false: answer from the newest backup in this folder, bucket or web server, and switch to each newer one. --store is the folder for restored backups. The header " + app.AsOfHeader + " of each answer is the time of the newest event in it", Destination: &b.Follow, Sources: Env("follow")},
		b.TrustFlag(),
	}
}

// CheckStart checks --from and --follow.
func (b *BackupSettings) CheckStart(s *Settings) error {
	switch {
	case b.Follow != "" && s.Consume:
		return UsageError("--follow answers from backups and indexes nothing: it needs --consume=false. To begin with a backup and then index, use --from")
	case b.Follow != "" && b.From != "":
		return UsageError("--from and --follow exclude each other")
	case b.Follow != "" && b.to != "":
		return UsageError("--follow has no store of its own to back up; remove --backup-to")
	case b.From != "" && !s.Consume:
		return UsageError("--from has no effect with --consume=false; to answer from backups, use --follow")
	case (b.From != "" || b.Follow != "") && !app.EngineOf(s.Store).InProcess:
		return UsageError("--from and --follow restore into a folder; --store %s is not one", s.Store)
	}
	return nil
}

// Source opens the target of --from or --follow, with the key that must have signed its backups.
func (b *BackupSettings) Source(flag, from string) (t backup.Target, trust *backup.Trust, err error) {
	if t, err = OpenTarget(flag, from); err != nil {
		return nil, nil, err
	}
	trust, err = b.Trust(from)
	return t, trust, err
}

// FollowOptions builds the options for --follow.
func (b *BackupSettings) FollowOptions() (o app.FollowOptions, err error) {
	o.Target, o.Trust, err = b.Source("--follow ", b.Follow)
	return o, err
}

// Trust reads the key of --trust, nil if there is none. A web server needs one.
func (b *BackupSettings) Trust(from string) (*backup.Trust, error) {
	if b.trust == "" && backup.IsWeb(from) {
		return nil, UsageError("%s is a web server: name the key that signs its backups with --trust", from)
	}
	if b.trust == "" {
		return nil, nil // no signature is needed
	}
	t, err := backup.ParseTrust(b.trust)
	if err != nil {
		return nil, UsageError("--trust: %v", err)
	}
	return t, nil
}

// Job builds what makes backups in a target.
func (b *BackupSettings) Job(flag, to string) (j app.BackupJob, err error) {
	if backup.IsWeb(to) {
		return j, UsageError("%s%s is a web server, which cannot be written to; name a folder or s3://BUCKET/PREFIX", flag, to)
	}
	if j.Target, err = OpenTarget(flag, to); err != nil {
		return j, err
	}
	if b.sign != "" {
		if j.Signer, err = backup.ReadSigner(b.sign, os.Getenv(EnvPrefix+"BACKUP_PASSWORD")); err != nil {
			return j, UsageError("--backup-sign: %v", err)
		}
	}
	if b.keep < 0 {
		return j, UsageError("--backup-keep %d: expected how many backups to keep, 1 or more", b.keep)
	}
	j.Keep, j.Program = b.keep, "skein "+Version()
	return j, nil
}

// Schedule builds the backups that a daemon makes automatically, nil if it makes none.
func (b *BackupSettings) Schedule(store string) (*app.BackupSchedule, error) {
	if b.to == "" {
		if b.keep != 0 || b.sign != "" {
			return nil, UsageError("--backup-keep and --backup-sign need --backup-to, the target of the backups")
		}
		return nil, nil // it makes none
	}
	if !app.EngineOf(store).InProcess {
		return nil, UsageError("--backup-to: %v. FoundationDB's own tools back it up; skein backup --store '%s' TARGET prints their commands", app.ErrNoCheckpoint, store)
	}
	if b.every < time.Minute {
		return nil, UsageError("--backup-every %v: must be 1m or more", b.every)
	}
	j, err := b.Job("--backup-to ", b.to)
	if err != nil {
		return nil, err
	}
	return &app.BackupSchedule{Job: j, Every: b.every}, nil
}

// OpenTarget opens the target that a flag, or an argument if flag is "", names.
func OpenTarget(flag, name string) (backup.Target, error) {
	t, err := backup.OpenTarget(name)
	if err != nil {
		return nil, UsageError("%s%v", flag, strings.TrimPrefix(err.Error(), backup.ErrTarget.Error()+": "))
	}
	return t, nil
}
