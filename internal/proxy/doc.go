// Package proxy carries requests for public URLs to the processes and sites of
// stacks.
//
// Routes maps a host name to a Target without a lock: the table leads from the host to
// its stack, whose entry has the target. Set replaces the entry of a stack in one step
// and returns the targets no longer in use; the caller drains these before it stops
// their processes.
//
// A request to a process is one exchange (package exchange).
//
// A stack of another node has a single entry for all its hosts, which names the node
// (Peer). The request is forwarded over a pool of connections as it is, with what the
// edge knows of its caller in internal headers, and the owner decides about all else. A
// stack that moves has an entry that holds: requests wait for the next one.
//
// A service may have paths that lead to other services of its stack. They belong to the
// service, whichever of its hosts a request has come to, and to the entry, so they switch
// with the targets.
//
// If no target can answer, the proxy answers itself: with HTML for a browser, and with
// a JSON object that has the single field detail for all others.
//
// Code in this package touches requests and answers as net/http has them. It starts and
// stops nothing, and knows neither the database nor the engine.
//
// # HTTP/1.1
//
// What RFC 9112 demands of a server, and of a proxy towards its services, and the test that
// holds it. Tests of this package, of edge and of peer run through both lanes. Where the RFC
// allows a choice, the stricter one is taken.
//
//	2.2   octets, no bare CR            TestEdge_ReadsWhatTheRulesAllowAndNoMore, TestHead_RefusesWhatCanBeReadTwoWays
//	2.2   nothing before the first field TestEdge_ReadsWhatTheRulesAllowAndNoMore
//	2.2   an end of line behind a POST  TestLanes_MakeTheSameOfEverySeed
//	2.3   our own version to each side  TestEdge_SpeaksItsOwnVersionToEachSide, TestHead_RefusesWhatCanBeReadTwoWays
//	3     request lines, or 400         TestEdge_SaysEveryFaultInJSON, TestScan_LeavesTheRestToNetHTTP
//	3     a target that is too long     TestEdge_RefusesTargetsThatAreTooLong; with 431 instead of 414,
//	                                    since a head has one limit, which may be met within its first line
//	3.2   one Host that is valid        TestEdge_SaysEveryFaultInJSON, TestEdge_TakesAddressesInBracketsForHosts
//	3.2.1 the target as it was sent     TestProxy_IsAsStraightToTheBackend
//	3.2.2 whole URLs, their host counts TestEdge_PassesOnOnlyTheHostThatItFound
//	3.2.3 no CONNECT                    TestEdge_PassesOnOnlyTheHostThatItFound
//	3.2.4 OPTIONS *                     TestEdge_PassesOptionsForTheWholeServer
//	4     status lines, or 502          TestHead_RefusesWhatCanBeReadTwoWays, TestProxy_AnswersForAServiceThatCannot
//	5.1   no space before the colon     TestEdge_LetsNoRequestBeSmuggled; an answer with one is 502, not mended
//	5.2   no folded lines in answers    TestHead_RefusesWhatCanBeReadTwoWays
//	5.2   folded lines in requests      TestEdge_LetsNoRequestBeSmuggled
//	6.1   no coding for HTTP/1.0        TestEdge_SpeaksItsOwnVersionToEachSide
//	6.1   none from HTTP/1.0            TestEdge_LetsNoRequestBeSmuggled, TestHead_RefusesWhatCanBeReadTwoWays
//	6.1   none but chunked, once        TestEdge_SaysEveryFaultInJSON, TestHead_RefusesWhatCanBeReadTwoWays
//	6.1   both framings: close          TestEdge_LetsNoRequestBeSmuggled, TestLanes_MakeTheSameOfEverySeed
//	6.2   one length, never with chunks TestProxy_IsAsStraightToTheBackend, TestEdge_SaysEveryFaultInJSON
//	6.3   HEAD, 1xx, 204 and 304 end    TestProxy_GivesEachClientItsOwnAnswer, TestProxy_GivesNobodyWhatALyingServiceSent
//	6.3   wrong framing: 400, or 502    TestEdge_RefusesWhatIsInDoubtAtOnce, TestProxy_AnswersForAServiceThatCannot
//	6.3   no reading beyond the end     TestProxy_NeverReadsASmuggledAnswer, TestLanes_MakeTheSameOfEverySeed
//	7.1   chunks, in both directions    TestProxy_IsAsStraightToTheBackend, TestProxy_RefusesABodyThatIsNotFramedRight
//	7.1   sizes that overflow           TestProxy_TakesNoChunkForLessThanItsSize
//	7.1.1 unknown extensions            TestEdge_ReadsWhatTheRulesAllowAndNoMore
//	7.1.2 trailers stay trailers        TestProxy_IsAsStraightToTheBackend
//	7.4   TE with its Connection option TestProxy_SendsTEWithItsConnectionOption
//	8     a part is not the whole       TestProxy_BreaksOffWhatTheServiceBreaksOff, TestEdge_ServesNothingBehindABrokenBody
//	9.2   an answer for each request    TestProxy_GivesClientsAtOnceTheirOwnAnswers, TestProxy_GivesNobodyWhatALyingServiceSent
//	9.3   1.0, close and keep-alive     TestEdge_KeepsConnectionsAsLongAsItsCallersDo, TestProxy_KeepsConnectionsThatServicesKeep
//	9.3   1.0 that asks to be kept      TestEdge_KeepsConnectionsAsLongAsItsCallersDo; it is, as nginx does: the rule
//	                                    is for proxies of callers, and to them a gateway is the server
//	9.3.1 what is sent again            TestProxy_RepeatsOnlyWhatMayBeRepeated, TestPeer_ThatStopsIsAskedAgain
//	9.3.2 pipelined, in order           TestLanes_MakeTheSameOfEverySeed
//	9.5   a caller who has left         TestProxy_ShowsTheServiceThatItsClientLeft, TestLane_SeesThatACallerHasLeft
//	9.5   while it is answered, or sends TestLane_SeesThatACallerHasLeftInTheMiddleOfAnAnswer, TestLane_SeesThatACallerHasLeftWhoseUploadNobodyReads
//	9.6   close, and nothing after it   TestLanes_MakeTheSameOfEverySeed, TestServer_ShutdownTellsBothLanes, TestShutdown_EndsConnectionsOfLaneOneBehindWhatTheyCarry
//	9.6   answers are read before it    TestEarlyAnswers_AreReadByEveryClient, TestEarlyAnswers_OfServicesAreRead
//	9.8   a farewell at the end of TLS  TestEdge_SaysFarewellInTLSAndTakesNoPartForTheWhole
//	9.8   incomplete closes, tickets    TestEdge_SaysFarewellInTLSAndTakesNoPartForTheWhole, TestLane_ResumesTLSAndAnswersInOneRecord
//	9.8   a farewell while a service thinks TestLane_SeesThatACallerHasLeft, TestLane_SeesAFarewellThatCameWithTheRequest
//	11.1  no split answers              TestHead_RefusesWhatCanBeReadTwoWays
//	11.2  no smuggled requests          TestEdge_LetsNoRequestBeSmuggled, TestLanes_MakeTheSameOfEverySeed, FuzzLanes, FuzzScan
//
// Of RFC 9110: fields that Connection names do not pass (7.6.1), nor what may not be a
// trailer (6.5.1): TestProxy_KeepsTenantsInTheirPlace. An upgrade is passed on where the
// service agrees (7.8): TestTunnel_CarriesWebSockets, TestTunnel_RefusedUpgradeIsAnOrdinaryAnswer.
package proxy
