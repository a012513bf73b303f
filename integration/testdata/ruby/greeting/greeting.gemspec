Gem::Specification.new do |s|
  s.name = "greeting"
  s.version = "1.0"
  s.summary = "A greeting"
  s.authors = ["Berth"]
  s.files = ["lib/greeting.rb"]
end
