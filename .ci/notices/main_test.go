package main

import (
	"bytes"
	"debug/buildinfo"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// The notices have a licence for every module in the program's build information.
func TestEveryModule(t *testing.T) {
	t.Chdir("../..")
	binary := filepath.Join(t.TempDir(), "skein")
	build := exec.CommandContext(t.Context(), "go", "build", "-o", binary, "./cmd/skein")
	build.Env = append(build.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	info, err := buildinfo.ReadFile(binary)
	if err != nil {
		t.Fatal(err)
	}
	var notices bytes.Buffer
	if err := run(t.Context(), &notices, []string{"./cmd/skein"}); err != nil {
		t.Fatal(err)
	}
	if len(info.Deps) < 20 {
		t.Fatalf("only %d modules are linked", len(info.Deps))
	}
	for _, m := range info.Deps {
		if m.Replace != nil {
			m.Version = m.Replace.Version
		}
		if !strings.Contains(notices.String(), "\n"+m.Path+" "+m.Version+": ") {
			t.Errorf("%s %s is linked but has no notice", m.Path, m.Version)
		}
	}
	for _, want := range []string{"\nGo go1.", "Redistribution and use in source and binary forms", "Apache License", "Permission is hereby granted, free of charge"} {
		if !strings.Contains(notices.String(), want) {
			t.Errorf("the notices lack %q", want)
		}
	}
}
