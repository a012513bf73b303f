module receiver

go 1.26
