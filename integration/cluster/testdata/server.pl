# A service with what the tests of the cluster ask of one. It needs nothing but Perl, and
# answers each connection in a process of its own.
use strict;
use IO::Socket::INET;

$| = 1;
$SIG{CHLD} = 'IGNORE';
my $door = IO::Socket::INET->new(LocalPort => $ENV{PORT}, Listen => 128, ReuseAddr => 1) or die "listen: $!";
my $process = time . '-' . int(rand 1e9) . ' ' . home();
while (1) {
	my $conn = $door->accept or next;
	if (fork) { close $conn; next }
	close $door;
	answer($conn);
	exit;
}

sub answer {
	my ($conn) = @_;
	my ($method, $url) = split / /, (<$conn> // return);
	my ($head, %header) = ('');
	while (my $line = <$conn>) {
		last if $line =~ /^\r?$/;
		$head .= $line;
		$header{lc $1} = $2 if $line =~ /^([^:]+):\s*(.*?)\r?$/;
	}
	my ($path, $query) = split /\?/, $url, 2;
	my %q = map { split /=/, $_, 2 } split /&/, $query // '';
	if ($path eq '/upgrade') { return upgrade($conn) }
	if ($path eq '/ticks') { return ticks($conn, $q{n}) }
	my $body = body($conn, \%header);
	my $file = "$ENV{DATA_DIR}/$q{name}";
	if ($path eq '/') { reply($conn, "hello from $ENV{SERVICE_NAME}, generation $ENV{GENERATION}") }
	elsif ($path eq '/write') { reply($conn, write_file($file, $body)) }
	elsif ($path eq '/read') { reply($conn, read_file($file)) }
	elsif ($path eq '/env') { reply($conn, $ENV{$q{name}} // '') }
	elsif ($path eq '/process') { reply($conn, $process) }
	elsif ($path eq '/print') { print "line $_\n" for 1 .. $q{n}; reply($conn, 'printed') }
	elsif ($path eq '/head') { reply($conn, $head) }
	elsif ($path eq '/length') { reply($conn, length $body) }
	elsif ($path eq '/bytes') { reply($conn, 'x' x $q{n}) }
	elsif ($path eq '/exit') { reply($conn, 'bye'); kill 'KILL', getppid }
	else { reply($conn, 'no such path', '404 Not Found') }
}

# home says where this machine has the container, so that a test knows on which node it is.
sub home {
	open my $mounts, '<', '/proc/self/mountinfo' or return '';
	while (<$mounts>) { return $1 if m{^\S+ \S+ \S+ (\S+) /etc/hostname } }
	return '';
}

sub body {
	my ($conn, $header) = @_;
	my $body = '';
	if (($header->{'transfer-encoding'} // '') =~ /chunked/i) {
		while (defined(my $size = <$conn>)) {
			my $piece = take($conn, hex $size =~ s/[;\r\n].*//sr);
			<$conn>;
			last if $piece eq '';
			$body .= $piece;
		}
		return $body;
	}
	return take($conn, $header->{'content-length'} // 0);
}

sub take {
	my ($conn, $size) = @_;
	my $got = '';
	while (length $got < $size) { read($conn, $got, $size - length $got, length $got) or last }
	return $got;
}

sub reply {
	my ($conn, $text, $status) = @_;
	print $conn 'HTTP/1.1 ', $status // '200 OK', "\r\nContent-Type: text/plain\r\nContent-Length: ", length $text, "\r\nConnection: close\r\n\r\n", $text;
}

# ticks sends a line ten times a second.
sub ticks {
	my ($conn, $n) = @_;
	$conn->autoflush(1);
	print $conn "HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nConnection: close\r\n\r\n";
	for my $i (1 .. $n) { print $conn "tick $i\n" or return; select undef, undef, undef, 0.1 }
}

# upgrade speaks another protocol: each line comes back in upper case.
sub upgrade {
	my ($conn) = @_;
	$conn->autoflush(1);
	print $conn "HTTP/1.1 101 Switching Protocols\r\nUpgrade: upper\r\nConnection: Upgrade\r\n\r\n";
	while (my $line = <$conn>) { print $conn uc $line }
}

sub write_file {
	my ($file, $content) = @_;
	open my $out, '>', "$file.new" or die "$file: $!";
	print $out $content;
	close $out and rename "$file.new", $file or die "$file: $!";
	return 'written';
}

sub read_file {
	my ($file) = @_;
	open my $in, '<', $file or return 'no such file';
	local $/;
	return <$in> // '';
}
